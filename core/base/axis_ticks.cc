#include "core/base/axis_ticks.h"

#include <cmath>

namespace tandem {

std::vector<double> AxisTicks(double most) {
  if (!(most > 0)) return {0};
  double unit = std::pow(10, std::floor(std::log10(most / 10)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (most / unit <= 10) break;
    unit *= factor;
  }
  std::vector<double> ticks;
  for (int i = 0; i * unit <= most * (1 + 1e-9); ++i) ticks.push_back(i * unit);
  return ticks;
}

}  // namespace tandem
