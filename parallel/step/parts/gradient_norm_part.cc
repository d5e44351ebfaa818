// Norm of all gradients: to clip by, and for whoever watches a training, who
// reads it with the step's score. The same in every layout, but where a device
// clips by itself.

#include <ATen/Tensor.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/flight/recorder.h"
#include "core/mesh/mesh.h"
#include "core/vector/power_sum.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/update_options.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

bool IsAveraged(const FlatBuffer& buffer) {
  return buffer.traits().reduces_over(kDataAxis);
}

// The name of the parameter at `place` among all of the model's, where it is on
// this rank; else empty.
std::string NameOfParameter(int64_t place, const MeshModel& model) {
  for (size_t i = 0; i < model.stages.size(); ++i) {
    if (model.stages[i] == nullptr) continue;
    for (const FlatBuffer* buffer : model.stages[i]->parameters().own()) {
      for (const FlatSlot& slot : buffer->slots()) {
        if (model.first_parameters[i] + slot.position == place) {
          return slot.name;
        }
      }
    }
  }
  return "";
}

// `first`: how many parameters come before the stage's.
void AddSquares(const TrainedStage& stage, int64_t first,
                PendingStep::Norm* norm) {
  for (const FlatBuffer* buffer : stage.parameters().own()) {
    if (!IsAveraged(*buffer)) continue;
    const GradientSquares squares = SumSquares(*buffer);
    if (!squares.sums.defined()) continue;
    for (const int64_t position : squares.positions) {
      norm->places.push_back(first + position);
    }
    norm->squares.push_back(squares.sums);
  }
}

class GradientNormPart : public StepPart {
 public:
  explicit GradientNormPart(const MeshModel& model) : model_(model) {}

  absl::Status Start() override;
  void Plan(StepContext& step) const override;
  absl::Status BeforeUpdate(StepContext& step) override;
  absl::Status End(StepContext& step) override;
  void AddNumbers(const PendingStep& step,
                  std::vector<at::Tensor>* numbers) const override;
  absl::Status Read(PendingStep& step, const double*& numbers,
                    StepScore* score) override;

 private:
  absl::StatusOr<GradientNorms> NormsOfAll() const;
  absl::StatusOr<std::string> NonFiniteGradient(const at::Tensor& sums) const;
  // Squares gradients as they are, on their devices.
  absl::Status Measure();
  absl::StatusOr<double> Sum(const PendingStep& step,
                             const double*& numbers) const;

  const MeshModel& model_;
  bool clips_on_device_ = false;
  std::optional<PendingStep::Norm> norm_;  // of the step under way
};

// Has one device all gradients, and clips by their norm without the host's
// waiting for it? Its norm is summed in an order of its own.
absl::Status GradientNormPart::Start() {
  const bool is_whole =
      model_.options.schedule.stages == 1 && model_.tied.empty();
  clips_on_device_ = is_whole && !model_.options.reproducible &&
                     model_.stages.front()->update().clips_on_device();
  return absl::OkStatus();
}

// A norm that is told is that of gradients before they are clipped.
void GradientNormPart::Plan(StepContext& step) const {
  if (model_.options.clip_norm == 0) return;
  step.clips_on_host = !clips_on_device_;
  if (step.measures_norm || step.clips_on_host) step.updates_at_once = false;
}

absl::Status GradientNormPart::BeforeUpdate(StepContext& step) {
  if (model_.options.clip_norm == 0 || !step.learning_rate.has_value()) {
    return absl::OkStatus();
  }
  const bool measures = step.measures_norm && step.pending != nullptr;
  if (!step.clips_on_host) {
    if (!measures) return absl::OkStatus();
    // Where a device clips, its optimizer writes gradients back. By value they
    // are clipped now, and once more in the update, which changes nothing.
    TANDEM_RETURN_IF_ERROR(model_.OnStages([&](int stage) {
      model_.stage(stage).update().ClipValues();
      return absl::OkStatus();
    }));
    return Measure();
  }
  TANDEM_ASSIGN_OR_RETURN(step.norms, NormsOfAll());
  if (!measures) return absl::OkStatus();
  // Before gradients are scaled, after which no one knows what they were.
  if (model_.options.clip_norm_type != 2) return Measure();
  norm_.emplace();
  norm_->known = step.norms->averaged;
  return absl::OkStatus();
}

// An optimizer leaves gradients as they are, unless it scales them.
absl::Status GradientNormPart::End(StepContext& step) {
  if (!step.measures_norm || step.pending == nullptr) return absl::OkStatus();
  if (!norm_) TANDEM_RETURN_IF_ERROR(Measure());
  step.pending->norm = std::exchange(norm_, std::nullopt);
  return absl::OkStatus();
}

// Norms of every parameter's gradient, in the order of the model: the same on
// every rank, wherever it is cut. First the averaged ones, then each replica's
// own.
absl::StatusOr<GradientNorms> GradientNormPart::NormsOfAll() const {
  const double p = model_.options.clip_norm_type;
  const int64_t count = model_.first_parameters.back();
  const at::Tensor all = at::zeros({2, count}, at::kDouble);
  auto* const sums = all.mutable_data_ptr<double>();
  TANDEM_RETURN_IF_ERROR(model_.OnStages([&](int i) {
    TrainedStage& stage = model_.stage(i);
    stage.update().ClipValues();
    for (FlatBuffer* buffer : stage.parameters().own()) {
      double* const first = sums + (IsAveraged(*buffer) ? 0 : count) +
                            model_.first_parameters[static_cast<size_t>(i)];
      for (const GradientSum& each :
           GradientSums(FlatBufferList({buffer}), p)) {
        first[each.slot->position] = each.sum;
      }
    }
    return absl::OkStatus();
  }));
  if (model_.groups.pipe() != nullptr) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(model_.groups.pipe()->AllReduceSum(
        all, [] { return "the norm of the gradients"; }));
  }
  GradientNorms norms;
  TANDEM_ASSIGN_OR_RETURN(norms.averaged,
                          ClippingNorm({sums, sums + count}, p));
  TANDEM_ASSIGN_OR_RETURN(norms.own,
                          ClippingNorm({sums + count, sums + 2 * count}, p));
  for (const double norm : {norms.averaged, norms.own}) {
    if (!model_.options.error_if_nonfinite || std::isfinite(norm)) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::string culprit, NonFiniteGradient(all));
    return NonFiniteNormError(norm, p, culprit);
  }
  return norms;
}

// Which parameter's gradient is not finite, of which one is. Every rank of the
// pipeline sees the same sums, and one of them knows the name.
absl::StatusOr<std::string> GradientNormPart::NonFiniteGradient(
    const at::Tensor& sums) const {
  const auto* const values = sums.const_data_ptr<double>();
  const auto* const end = values + sums.numel();
  const auto* const found =
      std::find_if(values, end, [](double sum) { return !std::isfinite(sum); });
  CHECK(found != end);
  const std::string mine = NameOfParameter(
      (found - values) % model_.first_parameters.back(), model_);
  if (model_.groups.pipe() == nullptr) return mine;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          model_.groups.pipe()->AllGatherString(mine));
  return absl::StrJoin(all, "");
}

absl::Status GradientNormPart::Measure() {
  // Each device's thread writes to parts of its own.
  std::vector<PendingStep::Norm> of_stage(model_.stages.size());
  TANDEM_RETURN_IF_ERROR(model_.OnStages([&](int i) {
    const auto stage = static_cast<size_t>(i);
    return CatchTorch(
        [&] {
          AddSquares(model_.stage(i), model_.first_parameters[stage],
                     &of_stage[stage]);
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

void GradientNormPart::AddNumbers(const PendingStep& step,
                                  std::vector<at::Tensor>* numbers) const {
  if (!step.norm) return;
  for (const at::Tensor& each : step.norm->squares) numbers->push_back(each);
}

absl::Status GradientNormPart::Read(PendingStep& step, const double*& numbers,
                                    StepScore* score) {
  if (!step.norm) return absl::OkStatus();
  score->gradient_norm = step.norm->known;
  if (score->gradient_norm.has_value()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(score->gradient_norm, Sum(step, numbers));
  return absl::OkStatus();
}

// Summed as in NormsOfAll: the same bits wherever the model is cut.
absl::StatusOr<double> GradientNormPart::Sum(const PendingStep& step,
                                             const double*& numbers) const {
  const int64_t count = model_.first_parameters.back();
  const at::Tensor all = at::zeros({count}, at::kDouble);
  auto* const sums = all.mutable_data_ptr<double>();
  for (const int64_t place : step.norm->places) sums[place] = *numbers++;
  if (model_.groups.pipe() != nullptr) {
    const FlightPurposeScope flight({"loss"});
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(
        model_.groups.pipe()->AllReduceSum(all, [number = step.number] {
          return absl::StrCat("the norm of the gradients of step ", number);
        }));
  }
  return NormOfPowerSums({sums, sums + count}, 2);
}

void DescribeClipping(const MeshStrategyOptions& options, NamedValues& values) {
  values["clip_norm"] = NumberText(options.clip_norm);
  values["clip_norm_type"] = NumberText(options.clip_norm_type);
  values["error_if_nonfinite"] = SwitchText(options.error_if_nonfinite);
  values["clip_value"] = NumberText(options.clip_value);
}

// With the scale of the loss.
absl::Status CheckClipping(const MeshStrategyOptions& options) {
  return CheckUpdateOptions(options);
}

}  // namespace

constexpr StepPartRow kGradientNormRow = {"gradient_norm",
                                          MakeStepPart<GradientNormPart>,
                                          DescribeClipping, CheckClipping};

}  // namespace tandem
