#include "parallel/optim/parameter_update.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <glog/logging.h>

#include <atomic>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/mesh/mesh.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem {
namespace {

std::atomic<int> on_all_types{0};
std::atomic<int64_t> counted_divisors{0};

bool CanClipOnDevice(const UpdateOptions& options,
                     const FlatBufferList& buffers,
                     const ShareOfBuffer& share_of) {
  if (options.clip_norm == 0 || options.clip_norm_type != 2) return false;
  if (options.error_if_nonfinite) return false;
  int averaged = 0;
  int all = 0;
  for (const FlatBuffer* buffer : buffers) {
    if (share_of && !share_of(*buffer).is_whole()) return false;
    averaged += buffer->traits().reduces_over(kDataAxis) ? 1 : 0;
    ++all;
  }
  // Each has a norm of its own.
  if (averaged != 0 && averaged != all) return false;
  return NormStaysOnDevice(buffers);
}

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
    const at::Tensor sums = SumSquares(*buffer).sums;
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

ParameterUpdate::ParameterUpdate(const UpdateOptions& options,
                                 FlatBufferList buffers,
                                 std::unique_ptr<Optimizer> optimizer)
    : clip_norm_(options.clip_norm),
      clip_value_(options.clip_value),
      buffers_(std::move(buffers)),
      optimizer_(std::move(optimizer)) {}

absl::StatusOr<ParameterUpdate> ParameterUpdate::Create(
    const UpdateOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  TANDEM_RETURN_IF_ERROR(CheckUpdateOptions(options));
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Optimizer> optimizer,
      MakeGroupedOptimizer(AllOptimizers(options), buffers, share_of));
  ParameterUpdate update(options, buffers, std::move(optimizer));
  update.clips_on_device_ = CanClipOnDevice(options, buffers, share_of);
  return update;
}

void ParameterUpdate::ClipValues() {
  if (clip_value_ > 0) ClipGradientValue(buffers_, clip_value_);
}

Optimizer::DivisorOf ParameterUpdate::Divisors(
    const std::optional<GradientNorms>& norms,
    const at::Tensor& on_device) const {
  if (on_device.defined()) {
    return [&on_device](const FlatBuffer& /*buffer*/) -> Optimizer::Divisor {
      return on_device;
    };
  }
  if (!norms.has_value()) return nullptr;
  return [this, &norms](const FlatBuffer& buffer) -> Optimizer::Divisor {
    const bool averaged = buffer.traits().reduces_over(kDataAxis);
    return ClippingDivisor(clip_norm_, averaged ? norms->averaged : norms->own);
  };
}

absl::Status ParameterUpdate::Step(double learning_rate,
                                   const std::optional<GradientNorms>& norms,
                                   const at::Tensor& found_inf) {
  CHECK(!norms.has_value() || !found_inf.defined());
  for (FlatBuffer* buffer : buffers_) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(FaultPoint("before_optimizer"));
  const TraceScope scope("compute", "optimizer");
  const bool on_device = !norms.has_value() && clips_on_device_;
  TANDEM_RETURN_IF_ERROR(CatchTorch(
      [&] {
        at::Tensor divisor;
        if (on_device) divisor = ClippingDivisorOnDevice(buffers_, clip_norm_);
        // Without gradients there is nothing to leave out.
        const bool may_skip = !on_device || divisor.defined();
        optimizer_->StepUnless(may_skip ? found_inf : at::Tensor(),
                               learning_rate, Divisors(norms, divisor));
      },
      "optimizer step"));
  return FaultPoint("after_optimizer");
}

}  // namespace tandem
