#include "core/drawing/axis_ticks.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Beyond these a multiple is no integer of a double's precision any more.
constexpr double kMostMultiple = 1e15;

// What rounding may take off or add, as a part of a unit.
constexpr double kRounding = 1e-9;

// Multiples of a unit, by number.
struct Multiples {
  double unit = 0;
  double first = 0;
  double last = 0;
};

Multiples MultiplesBetween(double least, double most, double unit) {
  // 0 and not -0.
  return {unit, std::ceil(least / unit - kRounding) + 0.0,
          std::floor(most / unit + kRounding) + 0.0};
}

// Multiples of the least of 1, 2 or 5 times a power of ten of which there are
// at most `count`.
Multiples RoundMultiples(double least, double most, int count) {
  double unit = std::pow(10, std::floor(std::log10((most - least) / count)));
  for (const double factor : {2.0, 2.5, 2.0, 2.0}) {  // 1, 2, 5, 10, 20
    const Multiples all = MultiplesBetween(least, most, unit);
    if (all.last - all.first < count) return all;
    unit *= factor;
  }
  return MultiplesBetween(least, most, unit);
}

std::vector<double> TicksAt(const Multiples& multiples) {
  std::vector<double> ticks;
  for (double i = multiples.first; i <= multiples.last; ++i) {
    ticks.push_back(i * multiples.unit);
  }
  return ticks;
}

// {1, 2, 5} times each power of ten, or {1} times every `stride`-th one.
std::vector<double> PowersOfTen(double least, double most, int stride,
                                bool with_parts) {
  std::vector<double> ticks;
  const auto first = static_cast<int>(std::floor(std::log10(least)));
  const auto last = static_cast<int>(std::ceil(std::log10(most)));
  for (int power = first; power <= last; ++power) {
    if (power % stride != 0) continue;
    for (const double part : {1.0, 2.0, 5.0}) {
      const double tick = part * std::pow(10, power);
      if (part > 1 && !with_parts) continue;
      if (tick < least * (1 - kRounding)) continue;
      if (tick > most * (1 + kRounding)) continue;
      ticks.push_back(tick);
    }
  }
  return ticks;
}

}  // namespace

std::vector<double> AxisTicks(double most) {
  if (!(most > 0)) return {0};
  double unit = std::pow(10, std::floor(std::log10(most / 10)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (most / unit <= 10) break;
    unit *= factor;
  }
  return TicksAt(MultiplesBetween(0, most, unit));
}

std::vector<double> AxisTicks(double least, double most, int count) {
  if (!(most > least)) return {};
  const Multiples all = RoundMultiples(least, most, count);
  const double greatest = std::max(std::abs(all.first), std::abs(all.last));
  if (!(all.unit > 0 && greatest <= kMostMultiple)) return {};
  return TicksAt(all);
}

std::vector<double> LogarithmicTicks(double least, double most, int count) {
  if (!(least > 0) || !(most > least)) return {};
  const auto fits = [&](const std::vector<double>& ticks) {
    return ticks.size() <= static_cast<size_t>(count);
  };
  std::vector<double> ticks = PowersOfTen(least, most, 1, true);
  if (fits(ticks)) return ticks;
  for (int stride = 1; stride < 1000; ++stride) {
    ticks = PowersOfTen(least, most, stride, false);
    if (fits(ticks)) break;
  }
  return ticks;
}

}  // namespace tandem
