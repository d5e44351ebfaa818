#include "tests/models/rounding.h"

#include <glog/logging.h>

#include <cmath>

namespace tandem {
namespace {

// Bits behind the leading one.
int FractionBits(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 52;
    case at::kFloat:
      return 23;
    case at::kHalf:
      return 10;
    case at::kBFloat16:
      return 7;
    default:
      LOG(FATAL) << "not a floating-point type: " << at::toString(dtype);
  }
}

}  // namespace

double UnitAtOne(at::ScalarType dtype) {
  return std::ldexp(1, -FractionBits(dtype));
}

double UnitInLastPlace(at::ScalarType dtype, double magnitude) {
  CHECK_GT(magnitude, 0);
  return std::ldexp(UnitAtOne(dtype), std::ilogb(magnitude));
}

double RoundingTolerance(at::ScalarType dtype, int roundings,
                         double magnitude) {
  constexpr double kDeviations = 4;
  const double error = UnitAtOne(dtype) / 2 * magnitude;
  return kDeviations * std::sqrt(2.0 * roundings) * error;
}

}  // namespace tandem
