#include "tools/trainer/job/partition.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/model/layer.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/token_embedding.h"
#include "parallel/schedule/schedules.h"
#include "tools/trainer/job/optimizer_groups.h"

namespace tandem::partition_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Notes how many samples were asked for.
class Samples : public Dataset {
 public:
  int64_t size() const override { return 100; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& /*parts*/) const override {
    asked_.push_back(static_cast<int64_t>(indices.size()));
    return Batch{at::ones({asked_.back(), 4}),
                 at::zeros({asked_.back()}, at::kLong), asked_.back()};
  }
  std::vector<int64_t> input_shape() const override { return {4}; }
  int64_t classes() const override { return 3; }

  const std::vector<int64_t>& asked() const { return asked_; }

 private:
  mutable std::vector<int64_t> asked_;
};

// What each of so many ranks finds, with so many devices.
std::vector<JobPartition> FoundPartitions(const TrainOptions& options,
                                          std::vector<PartitionTask> tasks,
                                          const Samples& data, int ranks,
                                          int devices) {
  std::vector<JobPartition> partitions(static_cast<size_t>(ranks));
  const auto groups =
      MakeOptimizerGroups(options, tasks.front().model.layers, {});
  ExpectOk(groups.status());
  for (PartitionTask& each : tasks) {
    if (groups.ok()) each.model.optimizers = groups->update;
  }
  ExpectOk(RunThreadRanks(ranks, [&](Communicator& world) {
    const auto found =
        PartitionJob(options, tasks,
                     std::vector<c10::Device>(devices, c10::kCPU), data, world);
    if (found.ok()) partitions[static_cast<size_t>(world.rank())] = *found;
    return found.status();
  }));
  return partitions;
}

// Rank 0's.
JobPartition FoundPartition(const TrainOptions& options,
                            const PartitionTask& task, const Samples& data,
                            int ranks = 1, int devices = 2) {
  return FoundPartitions(options, {task}, data, ranks, devices).front();
}

TEST(PartitionJobTest, MeasuresAMicrobatchByTheJobsLoss) {
  Samples data;
  int losses = 0;
  PartitionTask task;
  task.model.layers = {LinearLayer("fc1", 4, 8), ReluLayer("relu1"),
                       LinearLayer("fc2", 8, 3)};
  task.schedule = *OneFOneB({2, 1, 4});
  task.microbatch = 5;
  task.checkpointing = ActivationCheckpointing::kAlways;
  task.model.loss = [&losses](const at::Tensor& outputs,
                              const at::Tensor& targets) {
    ++losses;
    return CrossEntropy(outputs, targets);
  };
  TrainOptions options;
  const auto run = [&](const std::string& balance) {
    options.pipeline.balance = balance;
    return FoundPartition(options, task, data);
  };
  for (const char* balance : {"uniform", "parameters", "relu1"}) {
    EXPECT_EQ(run(balance).cuts.size(), 1u);
  }
  EXPECT_THAT(data.asked(), ElementsAre());
  EXPECT_EQ(losses, 0);
  const JobPartition partition = run("profile");
  EXPECT_EQ(partition.cuts.size(), 1u);
  EXPECT_THAT(data.asked(), ElementsAre(5));
  EXPECT_GT(losses, 0);
  EXPECT_THAT(partition.table, HasSubstr("160 B"));  // 5 x 8 floats of relu1
}

// A step of 200 samples, in 2 microbatches or in 50.
std::vector<PartitionTask> TwoTasks() {
  std::vector<PartitionTask> tasks;
  for (const int microbatches : {2, 50}) {
    PartitionTask& task = tasks.emplace_back();
    task.model.layers = {LinearLayer("fc1", 4, 8), ReluLayer("relu1"),
                         LinearLayer("fc2", 8, 3)};
    task.schedule = *OneFOneB({2, 1, microbatches});
    task.microbatch = 200 / microbatches;
    task.model.loss = CrossEntropy;
  }
  return tasks;
}

TEST(PartitionJobTest, MeasuresEachNumberOfMicrobatchesAndAllTakeTheSame) {
  for (const char* balance : {"", "profile", "relu1"}) {
    SCOPED_TRACE(balance);
    const Samples data;
    TrainOptions options;
    options.pipeline.balance = balance;
    options.pipeline.microbatches.reset();
    const std::vector<JobPartition> found =
        FoundPartitions(options, TwoTasks(), data, /*ranks=*/2, /*devices=*/1);
    EXPECT_THAT(data.asked(), ElementsAre(100, 4));
    const int microbatches = found[0].schedule.microbatches;
    EXPECT_EQ(found[1].schedule.microbatches, microbatches);
    EXPECT_EQ(found[1].cuts, found[0].cuts);
    EXPECT_THAT(found[0].microbatches,
                AllOf(StartsWith(absl::StrCat(microbatches, " of 2, 50 (")),
                      ContainsRegex("predicted [0-9.]+ ms a step; "
                                    "(2|50): [0-9.]+\\)$")));
    EXPECT_THAT(found[0].table, HasSubstr("predicted step"));
    EXPECT_EQ(found[1].microbatches, "");
  }
}

// One that is given is measured for its cuts alone.
TEST(PartitionJobTest, SaysNothingOfMicrobatchesThatAreGiven) {
  const Samples data;
  TrainOptions options;
  options.pipeline.balance = "profile";
  EXPECT_EQ(FoundPartition(options, TwoTasks().back(), data).microbatches, "");
}

// Inputs of 100 samples take 1600 bytes, and the first device keeps two.
TEST(PartitionJobTest, ANumberThatDoesNotFitIsNotTaken) {
  const Samples data;
  TrainOptions options;
  options.pipeline.microbatches.reset();
  options.devices.device_memory = "2KiB";
  const JobPartition found =
      FoundPartitions(options, TwoTasks(), data, 1, 2).front();
  EXPECT_EQ(found.schedule.microbatches, 50);
  EXPECT_THAT(found.microbatches, EndsWith("; 2: does not fit)"));
  options.devices.device_memory = "100B";
  EXPECT_THAT(RunThreadRanks(2,
                             [&](Communicator& world) {
                               return PartitionJob(options, TwoTasks(),
                                                   {c10::kCPU}, data, world)
                                   .status();
                             }),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "--microbatches=auto", "do not fit into devices"));
}

// A job evaluates in as many microbatches as a step has, here of 10 samples,
// which are twice as many. There are input, output and result of relu1.
TEST(PartitionJobTest, CountsAnEvaluation) {
  const Samples data;
  PartitionTask task;
  task.model.layers = {LinearLayer("fc1", 4, 8), ReluLayer("relu1"),
                       LinearLayer("fc2", 8, 3)};
  task.schedule = *OneFOneB({2, 1, 4});
  task.microbatch = 5;
  task.evaluation_batch = 40;
  task.model.loss = CrossEntropy;
  TrainOptions options;
  options.pipeline.balance = "profile";
  EXPECT_THAT(FoundPartition(options, task, data).table,
              AllOf(HasSubstr("activations  evaluation  "),
                    HasSubstr(" 960 B  ")));  // 2 x 3 x 160
}

// A parameter, its gradient, and what the optimizer keeps of it.
TEST(PartitionJobTest, CountsTheStateOfTheJobsOptimizer) {
  const Samples data;
  PartitionTask task;
  task.model.layers = {LinearLayer("fc1", 4, 8), LinearLayer("fc2", 8, 3)};
  task.schedule = *OneFOneB({2, 1, 4});
  task.model.loss = CrossEntropy;
  constexpr int64_t kBytes = (4 * 8 + 8) * 4;  // of fc1
  const auto expect_state = [&](const TrainOptions& options, int64_t numbers,
                                int ranks = 1) {
    EXPECT_THAT(FoundPartition(options, task, data, ranks).table,
                HasSubstr(absl::StrCat(" ", (2 + numbers) * kBytes, " B")));
  };
  TrainOptions options;
  options.pipeline.balance = "profile";
  options.optimizer = "sgd";
  options.momentum = 0.9;
  expect_state(options, 1);
  options.momentum = 0;
  expect_state(options, 0);
  options.optimizer = "adamw";
  expect_state(options, 2);
  options.amsgrad = true;
  expect_state(options, 3);
  options.amsgrad = false;
  // Muon keeps one number of the weight, AdamW two of the bias.
  options.optimizer = "muon";
  EXPECT_THAT(FoundPartition(options, task, data).table,
              HasSubstr(absl::StrCat(" ", 3 * 4 * 8 * 4 + 4 * 8 * 4, " B")));
  options.optimizer = "adamw";
  options.ddp.shard = "off";
  expect_state(options, 2, /*ranks=*/2);
  options.ddp.shard = "optimizer";
  expect_state(options, 1, /*ranks=*/2);

  // What nobody shares: errors, sums, and values of DiLoCo's.
  TrainOptions plain;
  plain.pipeline.balance = "profile";
  plain.optimizer = "sgd";
  plain.momentum = 0;
  options = plain;
  options.ddp.comm_hook = "powersgd";
  expect_state(options, 1, /*ranks=*/2);
  options.ddp.comm_hook = "powersgd:error_feedback=false";
  expect_state(options, 0, /*ranks=*/2);
  options = plain;
  options.pipeline.reproducible = true;
  expect_state(options, 3);
  options = plain;
  options.ddp.average_parameters_every = 2;
  expect_state(options, 1, /*ranks=*/2);
  options.ddp.outer_learning_rate = 0.7;
  expect_state(options, 2, /*ranks=*/2);
  options.ddp.outer_momentum = 0.9;
  expect_state(options, 3, /*ranks=*/2);
}

// One stage, whose layers have a weight together: where results are to be
// reproducible each has a copy of it.
TEST(PartitionJobTest, CountsATiedWeightAsOftenAsAStageHasIt) {
  const Samples data;
  PartitionTask task;
  const LayerSpec first = LinearLayer("first", 4, 4, /*bias=*/false);
  task.model.layers = {first, TiedLinearLayer("tied", first, "first.weight"),
                       LinearLayer("head", 4, 3)};
  task.schedule = *OneFOneB({1, 1, 4});
  task.model.loss = CrossEntropy;
  TrainOptions options;
  options.pipeline.balance = "profile";
  options.optimizer = "sgd";
  options.momentum = 0;
  constexpr int64_t kWeight = 4 * 4 * 4, kHead = (4 * 3 + 3) * 4;
  for (const bool reproducible : {false, true}) {
    options.pipeline.reproducible = reproducible;
    // Values and gradients, and the sums of four microbatches.
    const int64_t bytes =
        reproducible ? 5 * (2 * kWeight + kHead) : 2 * (kWeight + kHead);
    EXPECT_THAT(
        FoundPartition(options, task, data, /*ranks=*/1, /*devices=*/1).table,
        HasSubstr(absl::StrCat(" ", bytes, " B")));
  }
}

// Layers whose makers fail the test when another layer is there.
class LoneLayers {
 public:
  explicit LoneLayers(LayerSpecs specs) : specs_(std::move(specs)) {
    for (LayerSpec& spec : specs_) {
      spec.make = [this, make = spec.make](uint64_t seed) {
        absl::MutexLock lock(&mutex_);
        for (const auto& each : made_) EXPECT_TRUE(each.expired());
        Layer layer = make(seed);
        made_.push_back(layer.module);
        return layer;
      };
    }
  }

  const LayerSpecs& specs() const { return specs_; }
  size_t made() const {
    absl::MutexLock lock(&mutex_);
    return made_.size();
  }

 private:
  LayerSpecs specs_;
  mutable absl::Mutex mutex_;
  std::vector<std::weak_ptr<torch::nn::Module>> made_;
};

TEST(PartitionJobTest, MakesNoWholeModelWhereSizesSuffice) {
  LoneLayers layers({LinearLayer("fc1", 4, 8), LinearLayer("fc2", 8, 8),
                     LinearLayer("fc3", 8, 3)});
  const Samples data;
  PartitionTask task;
  task.model.layers = layers.specs();
  task.schedule = *OneFOneB({2, 1, 4});
  task.model.loss = CrossEntropy;
  for (const char* balance :
       {"", "uniform", "parameters", "type:Linear", "fc2"}) {
    SCOPED_TRACE(balance);
    TrainOptions options;
    options.pipeline.balance = balance;
    const size_t before = layers.made();
    ExpectOk(RunThreadRanks(2, [&](Communicator& world) {
      return PartitionJob(options, {task}, {c10::kCPU}, data, world).status();
    }));
    // By rank 0 alone.
    EXPECT_EQ(layers.made() - before, task.model.layers.size());
  }
}

}  // namespace
}  // namespace tandem::partition_test
