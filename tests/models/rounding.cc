#include "tests/models/rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
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

double LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

bool IsWithinRoundings(const at::Tensor& actual, const at::Tensor& expected,
                       int roundings) {
  if (actual.sizes() != expected.sizes() ||
      actual.scalar_type() != expected.scalar_type()) {
    return false;
  }
  if (actual.numel() == 0) return true;
  const at::NoGradGuard no_grad;
  const double difference = LargestDifference(actual, expected);
  const double magnitude = expected.abs().max().item<double>();
  return difference == 0 ||
         difference <=
             RoundingTolerance(expected.scalar_type(), roundings, magnitude);
}

}  // namespace tandem
