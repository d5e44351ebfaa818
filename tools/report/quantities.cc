#include "tools/report/quantities.h"

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/byte_size.h"

namespace tandem {
namespace {

constexpr char kNarrowSpace[] = "\xe2\x80\xaf";

// A number and the prefix that multiplies it.
struct Scaled {
  double value;
  const char* prefix;
};

Scaled ScaledByThousands(double value) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t i = 0;
  for (; std::abs(value) >= 1000 && i + 1 < std::size(prefixes); ++i) {
    value /= 1000;
  }
  return {value, prefixes[i]};
}

// Below this digits are shown as they are.
constexpr double kFewDigits = 1e4;

// "1e-05" has a digit that says nothing.
std::string ShortExponent(const std::string& number) {
  return absl::StrReplaceAll(number, {{"e-0", "e-"}, {"e+0", "e+"}});
}

std::string FourDigits(double value) {
  return ShortExponent(absl::StrFormat("%.4g", value));
}

// "4 min 5 s".
std::string InTwoUnits(int64_t count, int64_t of_large, const char* large,
                       const char* small) {
  return absl::StrCat(count / of_large, " ", large, " ", count % of_large, " ",
                      small);
}

}  // namespace

std::string ShownNumber(double value) {
  if (!std::isfinite(value)) return "not finite";
  if (std::abs(value) < kFewDigits) return FourDigits(value);
  const Scaled scaled = ScaledByThousands(value);
  if (std::abs(scaled.value) >= kFewDigits) return FourDigits(value);
  return absl::StrCat(FourDigits(scaled.value), " ", scaled.prefix);
}

std::string ShownPercent(double part) {
  return std::isfinite(part) ? absl::StrFormat("%.4g %%", 100 * part)
                             : ShownNumber(part);
}

std::string ShownCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  if (digits.size() <= 4) return digits;
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), kNarrowSpace);
  }
  return digits;
}

std::string ShownSeconds(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) return ShownNumber(seconds);
  if (seconds < 1) return FourDigits(seconds * 1e3) + " ms";
  if (seconds < 60) return absl::StrFormat("%.3g s", seconds);
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  if (whole < 3600) return InTwoUnits(whole, 60, "min", "s");
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 24 * 60) return InTwoUnits(minutes, 60, "h", "min");
  return InTwoUnits((whole + 1800) / 3600, 24, "d", "h");
}

std::string ShownMebibytes(double mebibytes) {
  constexpr double kMost = 1e12;
  if (!(mebibytes >= 0 && mebibytes < kMost)) return ShownNumber(mebibytes);
  return FormatBytes(static_cast<int64_t>(mebibytes * 1048576.0));
}

std::string ShownDate(double seconds_since_1970) {
  if (!(seconds_since_1970 > 0 && seconds_since_1970 < 1e11)) return "";
  const auto time = static_cast<time_t>(seconds_since_1970);
  struct tm parts = {};
  if (gmtime_r(&time, &parts) == nullptr) return "";
  char text[64];
  const size_t size =
      std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return std::string(text, size);
}

std::string TickText(double value) {
  if (std::abs(value) < kFewDigits) {
    return ShortExponent(absl::StrFormat("%.10g", value));
  }
  const Scaled scaled = ScaledByThousands(value);
  if (std::abs(scaled.value) >= kFewDigits) {
    return ShortExponent(absl::StrFormat("%.10g", value));
  }
  return absl::StrFormat("%.10g%s", scaled.value, scaled.prefix);
}

}  // namespace tandem
