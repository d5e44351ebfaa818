#include "parallel/pipelined.h"

#include <ATen/ops/empty.h>

#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/layer_list.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "parallel/microbatches.h"
#include "parallel/option_checks.h"
#include "parallel/score_numbers.h"

namespace tandem {
namespace {

absl::Status CheckOptions(const PipelinedOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_norm", options.clip_norm));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_value", options.clip_value));
  TANDEM_RETURN_IF_ERROR(
      CheckPositive("clip_norm_type", options.clip_norm_type));
  if (options.microbatch_size < 0 || options.weight_gradient_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "microbatch_size must be 0 or more and weight_gradient_batch 1 or "
        "more, but ",
        options.microbatch_size, " and ", options.weight_gradient_batch,
        " were given"));
  }
  return absl::OkStatus();
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
    : options_(options), pipe_(pipe), times_(options_.schedule) {}

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
  return absl::OkStatus();
}

absl::Status Pipelined::Flatten(const std::vector<TiedGroup>& tied) {
  std::map<std::string, std::string> first_of;  // by copy
  for (const TiedGroup& group : tied) {
    for (size_t i = 1; i < group.size(); ++i) {
      first_of[group[i].name] = group[0].name;
    }
  }
  const auto group_of_copy = [&](const std::string& name) -> int64_t {
    return options_.optimizer_group
               ? options_.optimizer_group(first_of.at(name))
               : 0;
  };
  const Schedule& schedule = executor_->schedule();
  for (int device = 0; device < schedule.devices(); ++device) {
    NamedTensors own, copies;
    bool is_here = false;
    for (int i : schedule.stages_of[static_cast<size_t>(device)]) {
      const auto& stage = executor_->stages()[static_cast<size_t>(i)];
      if (stage == nullptr) continue;
      is_here = true;
      for (const auto& each : NamedParameters(stage->layers())) {
        const auto found = first_of.find(each.first);
        (found == first_of.end() ? own : copies).push_back(each);
        if (found != first_of.end()) copies_of_.push_back(*found);
      }
    }
    if (!is_here) continue;
    Part& part = parts_[device];
    part.own = FlatBuffersOf(own, options_.optimizer_group);
    part.copies = FlatBuffersOf(copies, group_of_copy);
    TANDEM_ASSIGN_OR_RETURN(
        part.optimizer,
        GroupedOptimizer::Create(GroupsOf(options_), part.All()));
  }
  if (All().empty() && pipe_ == nullptr) {
    return absl::InvalidArgumentError("the model has no parameters to train");
  }
  return absl::OkStatus();
}

FlatBufferList Pipelined::Part::All() const {
  std::vector<FlatBuffer*> all;
  for (const FlatBuffers* each : {&own, &copies}) {
    for (const auto& buffer : *each) all.push_back(buffer.get());
  }
  return FlatBufferList(all);
}

FlatBufferList Pipelined::All() const {
  std::vector<FlatBuffer*> all;
  for (const auto& part : parts_) {
    for (FlatBuffer* buffer : part.second.All()) all.push_back(buffer);
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

absl::StatusOr<Score> Pipelined::Step(const Batch& batch,
                                      double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          Microbatches(batch));
  SetTraining(executor_->stages(), true);
  for (FlatBuffer* buffer : All()) buffer->ZeroGrad();
  const Samples samples = {options_.seed, step_, 0};
  PipelineExecutor::DeviceWork finish;
  if (updates_at_once()) {
    finish = [&](int device) {
      return UpdateDevice(device, std::nullopt, learning_rate);
    };
  }
  const absl::StatusOr<Score> score =
      executor_->TrainStep(microbatches, samples, finish);
  if (!score.ok()) return Annotate(score.status(), "training step");
  Measure(batch);
  if (!finish) TANDEM_RETURN_IF_ERROR(Update(learning_rate));
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
  const at::Tensor sums = at::empty({kScoreNumbers}, at::kDouble);
  ToNumbers(score, sums.mutable_data_ptr<double>());
  TANDEM_RETURN_IF_ERROR(pipe_->AllReduceSum(sums, [] { return "the loss"; }));
  return ScoreOf(sums.const_data_ptr<double>());
}

}  // namespace tandem
