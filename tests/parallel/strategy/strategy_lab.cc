#include "tests/parallel/strategy/strategy_lab.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"
#include "parallel/balance/cut.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/matrix_problem.h"

namespace tandem {
namespace {

// Simulated devices are made before a process's first backward.
[[maybe_unused]] const bool has_devices =
    TestBackend() == "sim_nccl" && !SimDevices(1).empty();

absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(const LabLayout& layout,
                                                       const LabJob& job,
                                                       Communicator* world) {
  if (job.make) return job.make(world);
  const LayerSpecs specs = job.specs();
  MeshStrategyOptions options =
      LabOptions(layout, static_cast<int64_t>(specs.size()));
  if (job.change) job.change(options);
  return MeshStrategy::Create(specs, job.loss, options, world);
}

std::vector<c10::Device> PoolOf(const LabLayout& layout) {
  if (!layout.device_pool.empty() || layout.backend != "sim_nccl") {
    return layout.device_pool;
  }
  return SimDevices(16);  // for whatever ranks a test has of its own
}

Batch ShareOf(const LabLayout& layout, const LabJob& job, int number,
              int replica) {
  if (job.share) return job.share(number, replica);
  const Batch whole = job.batch(number);
  return SplitBatch(whole, EvenSizes(whole.size, layout.replicas))
      .value()[static_cast<size_t>(replica)];
}

absl::Status TrainRank(const LabLayout& layout, const LabJob& job,
                       const LabRank& rank, LabOutcome* outcome) {
  Strategy& strategy = *rank.strategy;
  const auto batch_of = [&](int number) {
    const Batch batch = ShareOf(layout, job, number, rank.replica);
    return job.sparing ? TakenBy(strategy, batch) : batch;
  };
  if (job.begin) TANDEM_RETURN_IF_ERROR(job.begin(rank));
  std::vector<Score> scores;
  for (int step = 0; step < job.steps; ++step) {
    const Batch batch = batch_of(step);
    TANDEM_ASSIGN_OR_RETURN(scores.emplace_back(),
                            job.step ? job.step(rank, batch, step)
                                     : strategy.TrainStep(batch, job.rate));
  }
  Score evaluation;
  if (job.test >= 0) {
    TANDEM_ASSIGN_OR_RETURN(evaluation, strategy.Evaluate(batch_of(job.test)));
    TANDEM_ASSIGN_OR_RETURN(evaluation, strategy.Sum(evaluation));
  }
  if (job.end) TANDEM_RETURN_IF_ERROR(job.end(rank));
  TensorsByName& held = outcome->held[static_cast<size_t>(rank.rank)];
  for (const NamedTensors& part :
       {strategy.Parameters(), strategy.Buffers(), strategy.OptimizerState()}) {
    NamedTensors here;
    for (const auto& each : part) {
      if (!each.second.is_meta()) here.push_back(each);
    }
    held.merge(CopiesOf(here));
  }
  TANDEM_ASSIGN_OR_RETURN(const WholeState state, strategy.GatherState());
  if (rank.rank != 0) return absl::OkStatus();
  outcome->scores = std::move(scores);
  outcome->evaluation = evaluation;
  outcome->model = CopiesOf(state.parameters);
  outcome->model.merge(CopiesOf(state.buffers));
  outcome->optimizer = CopiesOf(state.optimizer);
  return absl::OkStatus();
}

using Compare = std::function<void(const at::Tensor&, const at::Tensor&)>;

void CompareByName(const TensorsByName& found, const TensorsByName& expected,
                   const Compare& compare) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    SCOPED_TRACE(name);
    ASSERT_EQ(found.count(name), 1u);
    compare(found.at(name), tensor);
  }
}

// The evaluation comes last.
std::vector<Score> AllScores(const LabOutcome& outcome) {
  std::vector<Score> scores = outcome.scores;
  scores.push_back(outcome.evaluation);
  return scores;
}

}  // namespace

std::vector<LabLayout> LabLayouts(absl::string_view columns, int microbatches) {
  std::vector<LabLayout> layouts;
  for (const absl::string_view column : absl::StrSplit(columns, ", ")) {
    layouts.push_back(LabLayoutNamed(column, microbatches));
  }
  return layouts;
}

LabLayout LabLayoutNamed(absl::string_view column, int microbatches) {
  const std::vector<std::string> words = absl::StrSplit(column, ' ');
  LabLayout layout;
  layout.name = std::string(column);
  layout.schedule = words[0];
  layout.microbatches = microbatches;
  std::vector<int> sizes;
  for (const auto& each : absl::StrSplit(words.at(1), 'x')) {
    CHECK(absl::SimpleAtoi(each, &sizes.emplace_back())) << column;
  }
  sizes.resize(4, 1);
  layout.replicas = sizes[0];
  layout.pipe = sizes[1];
  layout.devices = sizes[2];
  layout.chunks = sizes[3];
  if (words.size() > 2) {
    layout.checkpointing = CheckpointingNamed(words[2]);
  }
  return layout;
}

LabLayout LabPipeline(int stages, int ranks, int microbatches) {
  LabLayout layout;
  layout.pipe = ranks;
  layout.devices = stages / ranks;
  layout.microbatches = microbatches;
  return layout;
}

LabLayout LabReplicas(int ranks, int microbatches_of_each, bool cut) {
  LabLayout layout = {"replicas", "sequential", ranks, 1, cut ? 2 : 1};
  layout.microbatches = microbatches_of_each * ranks;
  layout.group_of_one = true;
  if (cut) layout.device_pool = SimDevices(4);
  return layout;
}

MeshStrategyOptions LabOptions(const LabLayout& layout, int64_t layers) {
  MeshStrategyOptions options;
  const int devices = layout.devices_of_replica();
  const int microbatches = layout.microbatches / layout.replicas;
  options.schedule =
      layout.schedule == kSequential
          ? *SequentialSchedule(devices, microbatches)
          : *MakeSchedule(layout.schedule,
                          {devices, layout.chunks, microbatches});
  options.cuts = *UniformCuts(layers, options.schedule.stages);
  options.devices.assign(static_cast<size_t>(layout.devices), c10::kCPU);
  const std::vector<c10::Device> pool = PoolOf(layout);
  if (!pool.empty()) {
    const auto first = pool.begin() + ThisThreadsRank() * layout.devices;
    options.devices.assign(first, first + layout.devices);
  }
  options.pipeline.checkpointing = layout.checkpointing;
  options.tensor = layout.tensor;
  options.weight_gradient_batch = layout.weight_gradient_batch;
  return options;
}

absl::Status OnLabRanks(
    const LabLayout& given, const LabJob& job,
    const std::function<absl::Status(const LabRank&)>& work) {
  LabLayout layout = given;
  layout.device_pool = PoolOf(given);  // made before there are groups
  const auto run = [&](Communicator* world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto strategy,
                            MakeStrategy(layout, job, world));
    const int rank = world == nullptr ? 0 : world->rank();
    return work(
        {world, rank, rank / (layout.pipe * layout.tensor), strategy.get()});
  };
  if (layout.ranks() == 1 && !layout.group_of_one) return run(nullptr);
  CommunicatorOptions options;
  options.backend = layout.backend;
  options.stages_on_host = layout.shares_devices;
  options.timeout = std::chrono::seconds(60);
  return RunThreadRanks(
      layout.ranks(), [&](Communicator& world) { return run(&world); },
      options);
}

absl::StatusOr<LabOutcome> TrainInLab(const LabLayout& layout,
                                      const LabJob& job) {
  LabOutcome outcome;
  outcome.held.resize(static_cast<size_t>(layout.ranks()));
  TANDEM_RETURN_IF_ERROR(OnLabRanks(layout, job, [&](const LabRank& rank) {
    return TrainRank(layout, job, rank, &outcome);
  }));
  return outcome;
}

TensorsByName CopiesOf(const NamedTensors& tensors) {
  TensorsByName copies;
  for (const auto& [name, tensor] : tensors) {
    copies[name] = tensor.detach().cpu().clone();
  }
  return copies;
}

absl::Status Resume(Strategy& strategy, const LabOutcome& from, int steps) {
  const auto list = [](const TensorsByName& tensors) {
    return NamedTensors(tensors.begin(), tensors.end());
  };
  TANDEM_RETURN_IF_ERROR(strategy.LoadOptimizerState(list(from.optimizer)));
  TANDEM_RETURN_IF_ERROR(strategy.LoadModelState(list(from.model)));
  strategy.ResumeAt(steps);
  return absl::OkStatus();
}

Batch TakenBy(const Strategy& strategy, Batch batch) {
  if (!strategy.takes_inputs()) {
    batch.inputs.reset();
    batch.further_inputs.clear();
  }
  if (!strategy.takes_targets()) {
    batch.targets.reset();
    batch.further_targets.clear();
  }
  return batch;
}

void ExpectSameBits(const TensorsByName& found, const TensorsByName& expected) {
  CompareByName(
      found, expected, [](const at::Tensor& tensor, const at::Tensor& other) {
        EXPECT_EQ(WeightsSha256({{"", tensor}}), WeightsSha256({{"", other}}));
      });
}

void ExpectSameBits(const absl::StatusOr<LabOutcome>& found,
                    const absl::StatusOr<LabOutcome>& expected) {
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found_scores = AllScores(*found), scores = AllScores(*expected);
  ASSERT_EQ(found_scores.size(), scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(found_scores[i].loss_sum, scores[i].loss_sum) << "step " << i;
    EXPECT_EQ(found_scores[i].correct, scores[i].correct) << "step " << i;
    EXPECT_EQ(found_scores[i].count, scores[i].count) << "step " << i;
  }
  ExpectSameBits(found->model, expected->model);
  ExpectSameBits(found->optimizer, expected->optimizer);
}

void ExpectClose(const absl::StatusOr<LabOutcome>& found,
                 const absl::StatusOr<LabOutcome>& expected,
                 const LabTolerance& tolerance) {
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found_scores = AllScores(*found), scores = AllScores(*expected);
  ASSERT_EQ(found_scores.size(), scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_NEAR(found_scores[i].loss(), scores[i].loss(), tolerance.loss)
        << "step " << i;
    EXPECT_EQ(found_scores[i].count, scores[i].count) << "step " << i;
  }
  EXPECT_EQ(found->evaluation.correct, expected->evaluation.correct);
  const auto compare = [&](const at::Tensor& tensor, const at::Tensor& other) {
    EXPECT_TRUE(tensor.allclose(other, tolerance.relative, tolerance.absolute));
  };
  CompareByName(found->model, expected->model, compare);
  CompareByName(found->optimizer, expected->optimizer, compare);
}

}  // namespace tandem
