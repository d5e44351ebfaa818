#include "parallel/optim/grad_scaler.h"

#include <ATen/Tensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/vector/multiply_and_find_inf.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

absl::Status CheckViews(const FlatBufferList& buffers) {
  for (const FlatBuffer* buffer : buffers) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  return absl::OkStatus();
}

// Whether it is so on any rank.
absl::StatusOr<bool> OnAny(bool here, Communicator* group) {
  if (group == nullptr) return here;
  const at::Tensor ranks = at::full({1}, here ? 1 : 0, at::kLong);
  TANDEM_RETURN_IF_ERROR(group->AllReduceSum(
      ranks, [] { return "whether all gradients are finite"; }));
  return ranks.const_data_ptr<int64_t>()[0] > 0;
}

// Maximal runs of neighbours that are `looked_at`, as slices of grads(), with
// their padding, which is zero; what lies in the span of them.
std::vector<at::Tensor> RunsOfGradients(
    const FlatBuffer& buffer, const ElementSpan& span,
    absl::FunctionRef<bool(size_t slot)> looked_at) {
  const std::vector<FlatSlot>& slots = buffer.slots();
  std::vector<at::Tensor> runs;
  for (size_t end, begin = 0; begin < slots.size(); begin = end + 1) {
    end = begin;
    while (end < slots.size() && looked_at(end)) ++end;
    if (end == begin) continue;
    const int64_t from = std::max(slots[begin].offset, span.begin);
    const int64_t to = std::min(slots[end - 1].end, span.end);
    if (from < to) runs.push_back(buffer.grad_memory().Part(from, to));
  }
  return runs;
}

std::vector<at::Tensor> RunsOfGradients(const FlatBuffer& buffer) {
  return RunsOfGradients(buffer, buffer.grad_memory().own(), [&](size_t slot) {
    return buffer.has_gradient(slot);
  });
}

// Multiplies them, and writes 1 to `found_inf` where one was not finite.
void Unscale(const std::vector<at::Tensor>& runs, const at::Tensor& inverse,
             const at::Tensor& found_inf) {
  if (runs.empty()) return;
  if (found_inf.is_cpu()) {
    if (MultiplyAndFindInf(runs, inverse.item<float>())) found_inf.fill_(1);
    return;
  }
  at::Tensor found = found_inf;
  at::_amp_foreach_non_finite_check_and_unscale_(runs, found, inverse);
}

}  // namespace

absl::StatusOr<GradScaler> GradScaler::Create(const GradScalerOptions& options,
                                              Communicator* group) {
  TANDEM_ASSIGN_OR_RETURN(const LossScale scale, LossScale::Create(options));
  return GradScaler(scale, group);
}

at::Tensor GradScaler::Scale(const at::Tensor& loss) const {
  return scale_.is_enabled() ? loss.mul(scale_.scale()) : loss;
}

absl::Status GradScaler::Unscale(const Optimizer& optimizer) {
  if (!scale_.is_enabled()) return absl::OkStatus();
  if (verdicts_.count(&optimizer) > 0) {
    return absl::FailedPreconditionError(
        "the gradients of this optimizer are unscaled already: Unscale comes "
        "once an iteration, and before Step; Update ends one");
  }
  const FlatBufferList buffers = optimizer.buffers();
  TANDEM_RETURN_IF_ERROR(CheckViews(buffers));
  TANDEM_ASSIGN_OR_RETURN(
      const bool here,
      CatchTorchOr([&] { return UnscaleGradients(buffers, scale_.inverse()); },
                   "unscaling gradients"));
  TANDEM_ASSIGN_OR_RETURN(verdicts_[&optimizer].found_inf, OnAny(here, group_));
  return absl::OkStatus();
}

absl::StatusOr<bool> GradScaler::MayStep(const Optimizer& optimizer) {
  if (!scale_.is_enabled()) return true;
  if (verdicts_.count(&optimizer) == 0) {
    TANDEM_RETURN_IF_ERROR(Unscale(optimizer));
  }
  Verdict& verdict = verdicts_.at(&optimizer);
  if (verdict.is_used) {
    return absl::FailedPreconditionError(
        "this optimizer has stepped already, or was skipped: Update comes "
        "before its next Step");
  }
  verdict.is_used = true;
  return !verdict.found_inf;
}

absl::StatusOr<bool> GradScaler::Step(Optimizer& optimizer,
                                      double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(const bool steps, MayStep(optimizer));
  if (!steps) return false;
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { optimizer.Step(learning_rate); }, "optimizer step"));
  return true;
}

absl::Status GradScaler::Update() {
  if (!scale_.is_enabled()) return absl::OkStatus();
  if (verdicts_.empty()) {
    return absl::FailedPreconditionError(
        "no gradients were looked at since the last Update: Step comes first");
  }
  const bool found_inf = absl::c_any_of(
      verdicts_, [](const auto& each) { return each.second.found_inf; });
  verdicts_.clear();
  return scale_.Update(found_inf);
}

bool UnscaleGradients(const FlatBufferList& buffers, float inverse) {
  const at::NoGradGuard no_grad;
  bool found = false;
  for (const FlatBuffer* buffer : buffers) {
    const std::vector<at::Tensor> runs = RunsOfGradients(*buffer);
    found |= MultiplyAndFindInf(runs, inverse);
  }
  return found;
}

void UnscaleGradients(const FlatBufferList& buffers, const at::Tensor& inverse,
                      const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  for (const FlatBuffer* buffer : buffers) {
    Unscale(RunsOfGradients(*buffer), inverse, found_inf);
  }
}

void FindNonFinite(const FlatBufferList& buffers, const ShareOfBuffer& share_of,
                   const at::Tensor& found_inf,
                   const std::vector<FiniteCheck>& checks) {
  const at::NoGradGuard no_grad;
  const at::Tensor one = at::ones_like(found_inf);
  size_t first = 0;  // of the buffer's slots, among all
  for (const FlatBuffer* buffer : buffers) {
    const FlatMemory& memory = buffer->grad_memory();
    const auto look = [&](const ElementSpan& span, FiniteCheck wanted) {
      const auto looked_at = [&](size_t slot) {
        // Nobody else sees what of averages is here alone.
        const FiniteCheck check = checks.empty() || memory.is_sharded()
                                      ? FiniteCheck::kShare
                                      : checks[first + slot];
        return buffer->has_gradient(slot) && check == wanted;
      };
      Unscale(RunsOfGradients(*buffer, span, looked_at), one, found_inf);
    };
    look(memory.is_sharded() ? memory.own()
                             : ShareSpan(*buffer, share_of(*buffer)),
         FiniteCheck::kShare);
    look(memory.own(), FiniteCheck::kAll);
    first += buffer->slots().size();
  }
}

}  // namespace tandem
