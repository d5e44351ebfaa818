#include "parallel/optim/device_clipping.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <atomic>
#include <vector>

#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/gradient_clipping.h"

namespace tandem {
namespace {

std::atomic<int> on_all_types{0};
std::atomic<int64_t> counted_divisors{0};

}  // namespace

bool NormStaysOnDevice(const FlatBufferList& buffers) {
  if (buffers.empty()) return false;
  const c10::Device device = (*buffers.begin())->values().device();
  for (const FlatBuffer* buffer : buffers) {
    const at::Tensor& values = buffer->values();
    if (values.scalar_type() != at::kFloat || values.device() != device) {
      return false;
    }
  }
  return device.is_cuda() || on_all_types > 0;
}

at::Tensor ClippingDivisorOnDevice(const FlatBufferList& buffers,
                                   double max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  for (const FlatBuffer* buffer : buffers) {
    const at::Tensor sums = SquaresOf(*buffer).sums;
    if (sums.defined()) squares.push_back(sums);
  }
  if (squares.empty()) return {};
  ++counted_divisors;
  const at::Tensor norm = at::cat(squares).sum().sqrt_();
  return norm.add_(1e-6).div_(max_norm).clamp_min_(1).to(at::kFloat);
}

NormsStayOnDevices::NormsStayOnDevices() : before_(counted_divisors) {
  ++on_all_types;
}

NormsStayOnDevices::~NormsStayOnDevices() { --on_all_types; }

int64_t NormsStayOnDevices::divisors() const {
  return counted_divisors - before_;
}

}  // namespace tandem
