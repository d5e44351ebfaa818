#include "core/base/byte_size.h"

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem {
namespace {

constexpr double kMost = 4611686018427387904.0;  // 2^62

constexpr std::pair<const char*, double> kUnits[] = {
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"B", 1.0},
};

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text) {
  absl::string_view number = absl::StripAsciiWhitespace(text);
  double factor = 1;
  for (const auto& [name, size] : kUnits) {
    if (!absl::EndsWithIgnoreCase(number, name)) continue;
    factor = size;
    number.remove_suffix(absl::string_view(name).size());
    break;
  }
  double value = 0;
  const bool is_number =
      absl::SimpleAtod(absl::StripAsciiWhitespace(number), &value);
  if (is_number && value >= 0 && value * factor <= kMost) {
    return static_cast<int64_t>(value * factor);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text,
                   "' is no number of bytes: expected one like 80GiB, 512MiB "
                   "or 4096"));
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.4g %s", value, kNames[unit]);
}

}  // namespace tandem
