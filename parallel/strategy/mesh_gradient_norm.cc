// Norm of a step's gradients, for whoever watches it: measured on their
// devices, and read with the step's score.

#include <ATen/ops/zeros.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/mesh/mesh.h"
#include "core/vector/power_sum.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {
namespace {

// `first`: how many parameters come before the stage's.
void AddSquares(const TrainedStage& stage, int64_t first,
                PendingStep::Norm* norm) {
  for (const FlatBuffer* buffer : stage.own()) {
    if (!buffer->traits().reduces_over(kDataAxis)) continue;
    const GradientSquares squares = SquaresOf(*buffer);
    if (!squares.sums.defined()) continue;
    for (const int64_t position : squares.positions) {
      norm->places.push_back(first + position);
    }
    norm->squares.push_back(squares.sums);
  }
}

}  // namespace

absl::Status MeshStrategyImpl::MeasureNorm() {
  // Each device's thread writes to parts of its own.
  std::vector<PendingStep::Norm> of_stage(model_->stages.size());
  TANDEM_RETURN_IF_ERROR(model_->executor->OnDevices([&](int device) {
    return CatchTorch(
        [&] {
          for (int i : model_->options.schedule
                           .stages_of[static_cast<size_t>(device)]) {
            const auto stage = static_cast<size_t>(i);
            AddSquares(*model_->stages[stage], model_->first_parameters[stage],
                       &of_stage[stage]);
          }
        },
        "the norm of the gradients");
  }));
  norm_.emplace();
  for (const PendingStep::Norm& each : of_stage) {
    norm_->places.insert(norm_->places.end(), each.places.begin(),
                         each.places.end());
    norm_->squares.insert(norm_->squares.end(), each.squares.begin(),
                          each.squares.end());
  }
  return absl::OkStatus();
}

// Before gradients are scaled, after which no one knows what they were.
absl::Status MeshStrategyImpl::NoteNorm(const GradientNorms& norms) {
  if (!measures_norm_) return absl::OkStatus();
  if (model_->options.clip_norm_type != 2) return MeasureNorm();
  norm_.emplace();
  norm_->known = norms.averaged;
  return absl::OkStatus();
}

// Where a device clips, its optimizer writes gradients back. By value they are
// clipped now, and once more in the update, which changes nothing.
absl::Status MeshStrategyImpl::MeasureBeforeClipping() {
  if (!measures_norm_) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(model_->OnStages([&](int stage) {
    model_->stage(stage).ClipValues();
    return absl::OkStatus();
  }));
  return MeasureNorm();
}

// An optimizer leaves gradients as they are, unless it scales them.
absl::Status MeshStrategyImpl::EndNorm() {
  if (!std::exchange(measures_norm_, false)) return absl::OkStatus();
  if (!norm_) TANDEM_RETURN_IF_ERROR(MeasureNorm());
  pending_.back().norm = std::exchange(norm_, std::nullopt);
  return absl::OkStatus();
}

// Summed as NormsOfAll does: the same bits wherever the model is cut.
absl::StatusOr<std::optional<double>> MeshStrategyImpl::ReadNorm(
    const PendingStep& step, const double*& numbers) {
  if (!step.norm || step.norm->known) {
    return step.norm ? step.norm->known : std::nullopt;
  }
  const int64_t count = model_->first_parameters.back();
  const at::Tensor all = at::zeros({count}, at::kDouble);
  auto* const sums = all.mutable_data_ptr<double>();
  for (const int64_t place : step.norm->places) sums[place] = *numbers++;
  if (model_->groups.pipe() != nullptr) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(
        model_->groups.pipe()->AllReduceSum(all, [number = step.number] {
          return absl::StrCat("the norm of the gradients of step ", number);
        }));
  }
  return std::optional<double>(NormOfPowerSums({sums, sums + count}, 2));
}

}  // namespace tandem
