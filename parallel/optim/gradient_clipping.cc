#include "parallel/optim/gradient_clipping.h"

#include <ATen/core/grad_mode.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/vector/power_sum.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

// Gradients of a buffer that have elements here: all of them, or a share's.
struct GradientsHere {
  std::vector<const FlatSlot*> slots;
  std::vector<ElementRange> ranges;  // of `flat`
  at::Tensor flat;
};

GradientsHere GradientsOf(const FlatBuffer& buffer) {
  const ElementSpan& own = buffer.grad_memory().own();
  GradientsHere here;
  here.flat = buffer.grad_memory().Own();
  for (size_t i = 0; i < buffer.slots().size(); ++i) {
    const FlatSlot& slot = buffer.slots()[i];
    const int64_t begin = std::max(slot.offset, own.begin);
    const int64_t end = std::min(slot.offset + slot.numel, own.end);
    if (!buffer.has_gradient(i) || begin >= end) continue;
    here.slots.push_back(&slot);
    here.ranges.push_back({begin - own.begin, end - begin});
  }
  return here;
}

void AppendSums(const FlatBuffer& buffer, double p,
                std::vector<GradientSum>* sums) {
  const GradientsHere here = GradientsOf(buffer);
  auto slot = here.slots.begin();
  for (double sum : PowerSums(here.flat, here.ranges, p)) {
    sums->push_back({*slot++, sum});
  }
}

std::vector<double> SumNumbers(const std::vector<GradientSum>& sums) {
  std::vector<double> numbers;
  for (const GradientSum& each : sums) numbers.push_back(each.sum);
  return numbers;
}

absl::Status CheckFinite(const std::vector<GradientSum>& sums, double norm,
                         double norm_type) {
  for (const GradientSum& each : sums) {
    if (std::isfinite(each.sum)) continue;
    return NonFiniteNormError(norm, norm_type, each.slot->name);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<GradientSum> GradientSums(const FlatBufferList& buffers, double p) {
  std::vector<GradientSum> sums;
  for (const FlatBuffer* buffer : buffers) AppendSums(*buffer, p, &sums);
  std::sort(sums.begin(), sums.end(),
            [](const GradientSum& a, const GradientSum& b) {
              return a.slot->position < b.slot->position;
            });
  return sums;
}

GradientSquares SumSquares(const FlatBuffer& buffer) {
  const GradientsHere here = GradientsOf(buffer);
  GradientSquares squares;
  for (const FlatSlot* slot : here.slots) {
    squares.positions.push_back(slot->position);
  }
  if (!here.slots.empty()) {
    squares.sums = SquareSums(here.flat, here.ranges);
  }
  return squares;
}

absl::Status NonFiniteNormError(double norm, double norm_type,
                                const std::string& culprit) {
  return absl::OutOfRangeError(absl::StrCat(
      "the norm (of order ", norm_type, ") of all gradients is ", norm,
      " and cannot be clipped: the gradient of ", culprit,
      " is not finite; look for the step in which the loss overflows, or turn "
      "error_if_nonfinite off"));
}

absl::StatusOr<double> ClippingNorm(const std::vector<double>& sums, double p) {
  if (!NormOverflows(sums, p)) return NormOfPowerSums(sums, p);
  return absl::OutOfRangeError(absl::StrCat(
      "the norm (of order ", p,
      ") of all gradients is more than a double holds, and they cannot be "
      "clipped by it, though each of them is finite; take a norm_type nearer "
      "to 2"));
}

double ClippingDivisor(double max_norm, double norm) {
  const double divisor = (norm + 1e-6) / max_norm;
  return divisor <= 1 ? 1 : divisor;  // not so for a NaN
}

void ScaleGradients(const FlatBufferList& buffers, double max_norm,
                    double norm) {
  double scale = max_norm / (norm + 1e-6);
  if (scale >= 1) return;  // not so for a NaN
  at::NoGradGuard no_grad;
  const auto multiply = [&](double factor) {
    for (const FlatBuffer* buffer : buffers) {
      MultiplyInPlace(buffer->grad_memory().Own(), factor);
    }
  };
  // What is less than a float32 holds with all its digits is one of several.
  for (; scale > 0 && scale < std::numeric_limits<float>::min();
       scale *= 0x1p100) {
    multiply(0x1p-100);
  }
  multiply(scale);
}

double GradientNorm(const FlatBufferList& buffers, double norm_type) {
  return NormOfPowerSums(SumNumbers(GradientSums(buffers, norm_type)),
                         norm_type);
}

double ClipGradientNorm(const FlatBufferList& buffers, double max_norm) {
  CHECK_GT(max_norm, 0);
  const double norm = GradientNorm(buffers);
  ScaleGradients(buffers, max_norm, norm);
  return norm;
}

absl::StatusOr<double> ClipGradientNorm(const FlatBufferList& buffers,
                                        const ClipNormOptions& options) {
  if (!(options.max_norm > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_norm must be greater than 0, got ", options.max_norm));
  }
  if (!(options.norm_type > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("norm_type must be greater than 0 (2, 1, infinity), got ",
                     options.norm_type));
  }
  const std::vector<GradientSum> sums =
      GradientSums(buffers, options.norm_type);
  TANDEM_ASSIGN_OR_RETURN(const double norm,
                          ClippingNorm(SumNumbers(sums), options.norm_type));
  if (options.error_if_nonfinite) {
    TANDEM_RETURN_IF_ERROR(CheckFinite(sums, norm, options.norm_type));
  }
  ScaleGradients(buffers, options.max_norm, norm);
  return norm;
}

void ClipGradientValue(const FlatBufferList& buffers, double clip_value) {
  CHECK_GT(clip_value, 0);
  at::NoGradGuard no_grad;
  for (const FlatBuffer* buffer : buffers) {
    buffer->grad_memory().Own().clamp_(-clip_value, clip_value);
  }
}

}  // namespace tandem
