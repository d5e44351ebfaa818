// Norm of all gradients: to clip by, and for whoever watches a training, who
// reads it with the step's score. The same in every layout, but where a device
// clips by itself.

#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>
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

#include "absl/algorithm/container.h"
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

// Rows of numbers by parameter, one for each kind of gradients: what a rank has
// of a parameter's is all of it, its share of it, its part, or a share of its
// part. Sums of bits.
constexpr int64_t kOwnGradients = 1;  // each replica's, not averaged
constexpr int64_t kInShares = 2;      // replicas have the others
constexpr int64_t kInParts = 4;  // ranks along the tensor axis have the others
constexpr int64_t kKinds = 8;

int64_t RowOf(const FlatBuffer& buffer) {
  const auto& shard = buffer.traits().shard;
  return (IsAveraged(buffer) ? 0 : kOwnGradients) +
         (buffer.grad_memory().is_sharded() ? kInShares : 0) +
         (shard.has_value() && shard->axis == kTensorAxis ? kInParts : 0);
}

// `first`: how many parameters come before the stage's; `count`: how many there
// are in a row.
void AddSquares(const TrainedStage& stage, int64_t first, int64_t count,
                PendingStep::Norm* norm) {
  for (const FlatBuffer* buffer : stage.parameters().own()) {
    if (!IsAveraged(*buffer)) continue;
    const GradientSquares squares = SumSquares(*buffer);
    if (!squares.sums.defined()) continue;
    for (const int64_t position : squares.positions) {
      norm->places.push_back(RowOf(*buffer) * count + first + position);
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
  absl::StatusOr<std::string> NonFiniteGradient(
      const std::vector<double>& sums) const;
  // Squares gradients as they are, on their devices.
  absl::Status Measure();
  absl::StatusOr<double> Sum(const PendingStep& step,
                             const double*& numbers) const;
  // What all ranks have of the model's gradients, of which this one's are
  // `rows`, [kKinds, parameters], whole or in pieces: numbers of averaged ones,
  // or of each replica's own. In whole turns of the parameters.
  absl::StatusOr<std::vector<double>> GatherPieces(
      const at::Tensor& rows, bool own, const CollectivePurpose& purpose) const;
  // Sums over the pipeline, in place.
  absl::Status SumOverStages(const at::Tensor& mine,
                             const CollectivePurpose& purpose) const;

  const MeshModel& model_;
  bool clips_on_device_ = false;
  std::optional<PendingStep::Norm> norm_;  // of the step under way
};

// Has one device all gradients, and clips by their norm without the host's
// waiting for it? Its norm is summed in an order of its own.
absl::Status GradientNormPart::Start() {
  const bool is_whole = model_.options.schedule.stages == 1 &&
                        model_.tied.empty() && model_.groups.parts() == nullptr;
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
  const at::Tensor all = at::zeros({kKinds, count}, at::kDouble);
  auto* const sums = all.mutable_data_ptr<double>();
  TANDEM_RETURN_IF_ERROR(model_.OnStages([&](int i) {
    TrainedStage& stage = model_.stage(i);
    stage.update().ClipValues();
    for (FlatBuffer* buffer : stage.parameters().own()) {
      double* const first = sums + RowOf(*buffer) * count +
                            model_.first_parameters[static_cast<size_t>(i)];
      for (const GradientSum& each :
           GradientSums(FlatBufferList({buffer}), p)) {
        first[each.slot->position] = each.sum;
      }
    }
    return absl::OkStatus();
  }));
  const CollectivePurpose purpose = [] { return "the norm of the gradients"; };
  TANDEM_RETURN_IF_ERROR(SumOverStages(all, purpose));
  TANDEM_ASSIGN_OR_RETURN(std::vector<double> averaged,
                          GatherPieces(all, /*own=*/false, purpose));
  TANDEM_ASSIGN_OR_RETURN(std::vector<double> own,
                          GatherPieces(all, /*own=*/true, purpose));
  GradientNorms norms;
  TANDEM_ASSIGN_OR_RETURN(norms.averaged, ClippingNorm(averaged, p));
  TANDEM_ASSIGN_OR_RETURN(norms.own, ClippingNorm(own, p));
  for (const auto& [norm, parts] :
       {std::pair(norms.averaged, &averaged), std::pair(norms.own, &own)}) {
    if (!model_.options.error_if_nonfinite || std::isfinite(norm)) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::string culprit,
                            NonFiniteGradient(*parts));
    return NonFiniteNormError(norm, p, culprit);
  }
  return norms;
}

// Which parameter's gradient is not finite, of which one is. Every rank of the
// pipeline sees the same sums, and one of them knows the name.
absl::StatusOr<std::string> GradientNormPart::NonFiniteGradient(
    const std::vector<double>& sums) const {
  const auto found =
      absl::c_find_if(sums, [](double sum) { return !std::isfinite(sum); });
  CHECK(found != sums.end());
  const std::string mine = NameOfParameter(
      (found - sums.begin()) % model_.first_parameters.back(), model_);
  if (model_.groups.pipe() == nullptr) return mine;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          model_.groups.pipe()->AllGatherString(mine));
  return absl::StrJoin(all, "");
}

absl::Status GradientNormPart::SumOverStages(
    const at::Tensor& mine, const CollectivePurpose& purpose) const {
  if (model_.groups.pipe() == nullptr) return absl::OkStatus();
  // Each is added to zeros.
  return model_.groups.pipe()->AllReduceSum(mine, purpose);
}

absl::StatusOr<std::vector<double>> GradientNormPart::GatherPieces(
    const at::Tensor& rows, bool own, const CollectivePurpose& purpose) const {
  std::vector<double> all;
  Communicator* const sharers = ShardsGradients(model_.options.shard)
                                    ? model_.AllStages().front()->sharers()
                                    : nullptr;
  Communicator* const parts = model_.groups.parts();
  for (int64_t row = own ? kOwnGradients : 0; row < kKinds; row += 2) {
    at::Tensor pieces = rows[row];
    for (const auto& [kind, group] :
         {std::pair(kInShares, sharers), std::pair(kInParts, parts)}) {
      if ((row & kind) == 0) continue;
      if (group == nullptr) {
        pieces = at::Tensor();  // nobody has any of these
        break;
      }
      TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> of_ranks,
                              group->AllGather(pieces, purpose));
      pieces = at::cat(of_ranks);
    }
    if (!pieces.defined()) continue;
    const auto* const numbers = pieces.const_data_ptr<double>();
    all.insert(all.end(), numbers, numbers + pieces.numel());
  }
  return all;
}

absl::Status GradientNormPart::Measure() {
  // Each device's thread writes to parts of its own.
  std::vector<PendingStep::Norm> of_stage(model_.stages.size());
  TANDEM_RETURN_IF_ERROR(model_.OnStages([&](int i) {
    const auto stage = static_cast<size_t>(i);
    return CatchTorch(
        [&] {
          AddSquares(model_.stage(i), model_.first_parameters[stage],
                     model_.first_parameters.back(), &of_stage[stage]);
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
  const at::Tensor all = at::zeros({kKinds, count}, at::kDouble);
  auto* const sums = all.mutable_data_ptr<double>();
  for (const int64_t place : step.norm->places) sums[place] += *numbers++;
  const FlightPurposeScope flight({"loss"});
  const CollectivePurpose purpose = [number = step.number] {
    return absl::StrCat("the norm of the gradients of step ", number);
  };
  TANDEM_RETURN_IF_ERROR(SumOverStages(all, purpose));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> parts,
                          GatherPieces(all, /*own=*/false, purpose));
  return NormOfPowerSums(parts, 2);
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
