#include "parallel/pipelined.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/fault_point.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "core/trace.h"
#include "parallel/gradient_clipping.h"
#include "parallel/microbatches.h"
#include "parallel/option_checks.h"

namespace tandem {
namespace {

absl::Status CheckOptions(const PipelinedOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_norm", options.clip_norm));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_value", options.clip_value));
  if (!(options.clip_norm_type > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("clip_norm_type must be greater than 0, but ",
                     options.clip_norm_type, " was given"));
  }
  if (options.microbatch_size < 0 || options.weight_gradient_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "microbatch_size must be 0 or more and weight_gradient_batch 1 or "
        "more, but ",
        options.microbatch_size, " and ", options.weight_gradient_batch,
        " were given"));
  }
  return absl::OkStatus();
}

bool SplitsBackward(const Schedule& schedule) {
  for (const auto& actions : schedule.actions) {
    for (const Action& each : actions) {
      if (each.kind == ActionKind::kBackwardWeight) return true;
    }
  }
  return false;
}

std::vector<OptimizerOptions> GroupsOf(const PipelinedOptions& options) {
  std::vector<OptimizerOptions> groups = {options.optimizer};
  groups.insert(groups.end(), options.further_optimizers.begin(),
                options.further_optimizers.end());
  return groups;
}

FlatBuffers FlatBuffersOf(
    const NamedTensors& parameters,
    const std::function<int64_t(const std::string&)>& group) {
  FlatBufferOptions options;
  for (const auto& each : parameters) {
    options.groups.push_back(group ? group(each.first) : 0);
  }
  return MakeFlatBuffers(parameters, options);
}

}  // namespace

Pipelined::Pipelined(const PipelinedOptions& options, Communicator* pipe)
    : options_(options),
      pipe_(pipe),
      times_(options_.schedule),
      peaks_(options_.schedule.actions.size()) {}

absl::StatusOr<std::unique_ptr<Pipelined>> Pipelined::Create(
    const LayerSpecs& specs, const LossFunction& loss,
    const PipelinedOptions& options, Communicator* pipe) {
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  auto strategy = absl::WrapUnique(new Pipelined(options, pipe));
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { return strategy->Prepare(specs, loss); }));
  return strategy;
}

absl::Status Pipelined::Prepare(const LayerSpecs& specs,
                                const LossFunction& loss) {
  const PipelineLayout layout = {options_.devices, pipe_};
  layers_ = static_cast<int>(specs.size());
  PipelineModelOptions model;
  model.cuts = options_.cuts;
  model.seed = options_.seed;
  model.splits_backward = SplitsBackward(options_.schedule);
  model.weight_gradient_batch = options_.weight_gradient_batch;
  TANDEM_ASSIGN_OR_RETURN(
      PipelineExecutor::Stages stages,
      MakeStages(specs, options_.schedule, layout, model, loss));
  TANDEM_ASSIGN_OR_RETURN(
      executor_, PipelineExecutor::Create(options_.schedule, std::move(stages),
                                          layout, options_.pipeline));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TiedGroup> tied,
                          TiedAcross(specs, options_.cuts));
  TANDEM_RETURN_IF_ERROR(Flatten(tied));
  TANDEM_ASSIGN_OR_RETURN(
      tied_, TiedGradients::Create(tied, options_.schedule, layout, All()));
  TANDEM_ASSIGN_OR_RETURN(optimizer_,
                          GroupedOptimizer::Create(GroupsOf(options_), All()));
  return absl::OkStatus();
}

absl::Status Pipelined::Flatten(const std::vector<TiedGroup>& tied) {
  std::map<std::string, std::string> first_of;  // by copy
  for (const TiedGroup& group : tied) {
    for (size_t i = 1; i < group.size(); ++i) {
      first_of[group[i].name] = group[0].name;
    }
  }
  NamedTensors own, copies;
  for (const auto& each : Parameters()) {
    const auto found = first_of.find(each.first);
    (found == first_of.end() ? own : copies).push_back(each);
    if (found != first_of.end()) copies_of_.push_back(*found);
  }
  if (own.empty() && copies.empty() && pipe_ == nullptr) {
    return absl::InvalidArgumentError("the model has no parameters to train");
  }
  own_ = FlatBuffersOf(own, options_.optimizer_group);
  // As the parameter that it is tied to.
  copies_ = FlatBuffersOf(copies, [&](const std::string& name) -> int64_t {
    return options_.optimizer_group
               ? options_.optimizer_group(first_of.at(name))
               : 0;
  });
  return absl::OkStatus();
}

FlatBufferList Pipelined::All() const {
  std::vector<FlatBuffer*> all;
  for (const FlatBuffers* part : {&own_, &copies_}) {
    for (const auto& buffer : *part) all.push_back(buffer.get());
  }
  return FlatBufferList(all);
}

absl::StatusOr<std::vector<Batch>> Pipelined::Microbatches(
    const Batch& batch) const {
  const int count = options_.schedule.microbatches;
  const std::vector<int64_t> sizes =
      options_.microbatch_size > 0
          ? FixedSizes(batch.size, options_.microbatch_size)
          : EvenSizes(batch.size, count);
  if (sizes.size() != static_cast<size_t>(count)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.size, " samples gives ", sizes.size(),
                     " microbatches, but schedule ", options_.schedule.name,
                     " has ", count));
  }
  return SplitBatch(batch, sizes);
}

absl::StatusOr<double> Pipelined::NormOfAll() const {
  const double p = options_.clip_norm_type;
  const double mine = GradientNorm(own_, p);
  if (pipe_ == nullptr) return mine;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all,
                          pipe_->AllGather(at::tensor({mine}, at::kDouble), [] {
                            return "the norm of the gradients";
                          }));
  double sum = 0;
  for (const at::Tensor& each : all) {
    const double norm = *each.const_data_ptr<double>();
    if (std::isinf(p)) {
      sum = norm <= sum ? sum : norm;  // a NaN stays
    } else {
      sum += std::pow(norm, p);
    }
  }
  return std::isinf(p) ? sum : std::pow(sum, 1 / p);
}

absl::Status Pipelined::Clip() {
  if (options_.clip_value > 0) ClipGradientValue(All(), options_.clip_value);
  if (options_.clip_norm == 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const double norm, NormOfAll());
  if (options_.error_if_nonfinite && !std::isfinite(norm)) {
    return absl::OutOfRangeError(absl::StrCat(
        "the norm (of order ", options_.clip_norm_type,
        ") of all gradients is ", norm,
        " and cannot be clipped; look for the step in which the loss "
        "overflows, or turn error_if_nonfinite off"));
  }
  ScaleGradients(All(), options_.clip_norm, norm);
  return absl::OkStatus();
}

absl::Status Pipelined::Update(double learning_rate) {
  for (FlatBuffer* buffer : All()) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(tied_->Sum());
  TANDEM_RETURN_IF_ERROR(FaultPoint("before_optimizer"));
  TraceScope scope("compute", "optimizer");
  return CatchTorch(
      [&]() -> absl::Status {
        TANDEM_RETURN_IF_ERROR(Clip());
        optimizer_->Step(learning_rate);
        return absl::OkStatus();
      },
      "optimizer step");
}

absl::StatusOr<Score> Pipelined::Step(const Batch& batch,
                                      double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          Microbatches(batch));
  SetTraining(executor_->stages(), true);
  for (FlatBuffer* buffer : All()) buffer->ZeroGrad();
  const Samples samples = {options_.seed, step_, 0};
  const absl::StatusOr<Score> score =
      executor_->TrainStep(microbatches, samples);
  if (!score.ok()) return Annotate(score.status(), "training step");
  Measure(batch);
  TANDEM_RETURN_IF_ERROR(Update(learning_rate));
  ++step_;
  return Sum(*score);
}

absl::StatusOr<Score> Pipelined::TrainStep(const Batch& batch,
                                           double learning_rate) {
  absl::StatusOr<Score> score = Step(batch, learning_rate);
  // Others would wait for this rank.
  if (!score.ok() && pipe_ != nullptr) pipe_->Abort(score.status());
  return score;
}

absl::StatusOr<Score> Pipelined::Sum(const Score& score) {
  if (pipe_ == nullptr) return score;
  const at::Tensor sums =
      at::tensor({score.loss_sum, static_cast<double>(score.correct),
                  static_cast<double>(score.count)},
                 at::kDouble);
  TANDEM_RETURN_IF_ERROR(pipe_->AllReduceSum(sums, [] { return "the loss"; }));
  const auto* values = sums.const_data_ptr<double>();
  Score sum;
  sum.loss_sum = values[0];
  sum.correct = static_cast<int64_t>(values[1]);
  sum.count = static_cast<int64_t>(values[2]);
  return sum;
}

}  // namespace tandem
