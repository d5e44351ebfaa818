// Any schedule that the validator accepts runs to its end, in training and in
// evaluation, and gives the gradients of one device.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/mlp.h"
#include "parallel/balance/cut.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/validator.h"
#include "tests/parallel/schedule/random_schedule.h"

namespace tandem {
namespace {

constexpr int64_t kFeatures = 6;
constexpr int64_t kClasses = 3;
constexpr uint64_t kSeed = 3;

// 20 layers.
LayerSpecs Specs(int64_t features) {
  return Mlp({features, 10, features, kClasses});
}

// Batches of about `rows` samples.
std::vector<Batch> BatchesOf(int64_t rows, int64_t features, int count) {
  const int64_t all = rows * count + 1;
  const at::Tensor inputs =
      at::randn({all, features}, GeneratorFor(kSeed, "inputs"));
  const at::Tensor targets = at::arange(all).remainder(kClasses);
  const auto inputs_of = inputs.tensor_split(count);
  const auto targets_of = targets.tensor_split(count);
  std::vector<Batch> batches;
  for (size_t i = 0; i < inputs_of.size(); ++i) {
    batches.push_back({inputs_of[i], targets_of[i], inputs_of[i].size(0)});
  }
  return batches;
}

struct Expected {
  std::map<std::string, at::Tensor> gradients;
  std::vector<at::Tensor> outputs;
  double loss = 0;
};

Expected InOnePiece(const LayerSpecs& specs,
                    const std::vector<Batch>& batches) {
  const LayerList layers = MakeLayers(specs, kSeed);
  Expected expected;
  Score score;
  double size = 0;
  for (const Batch& each : batches) size += static_cast<double>(each.size);
  for (const Batch& each : batches) {
    const at::Tensor output = Forward(layers, each.inputs);
    const LossResult result = CrossEntropy(output, each.targets);
    result.loss.mul(static_cast<double>(each.size) / size).backward();
    score += result.score;
    expected.outputs.push_back(output.detach());
  }
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    expected.gradients[name] = parameter.grad();
  }
  expected.loss = score.loss();
  return expected;
}

// What a rank compares, of a schedule with its number of microbatches and of a
// short step.
struct Cell {
  Schedule schedule;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
  int64_t rows = 2;
  int64_t features = kFeatures;
};

absl::StatusOr<std::unique_ptr<PipelineExecutor>> Make(
    const Cell& cell, const PipelineLayout& layout) {
  const LayerSpecs specs = Specs(cell.features);
  PipelineModelOptions model;
  model.seed = kSeed;
  model.splits_backward = SplitsBackward(cell.schedule);
  TANDEM_ASSIGN_OR_RETURN(
      model.cuts,
      UniformCuts(static_cast<int64_t>(specs.size()), cell.schedule.stages));
  TANDEM_ASSIGN_OR_RETURN(auto stages, MakeStages(specs, cell.schedule, layout,
                                                  model, CrossEntropy));
  PipelineOptions options;
  options.checkpointing = cell.checkpointing;
  options.timeout = std::chrono::seconds(20);
  options.hang_timeout = std::chrono::seconds(60);
  return PipelineExecutor::Create(cell.schedule, std::move(stages), layout,
                                  options);
}

absl::Status RunStep(PipelineExecutor& executor, const LayerSpecs& specs,
                     const std::vector<Batch>& batches) {
  const Expected expected = InOnePiece(specs, batches);
  TANDEM_ASSIGN_OR_RETURN(const Score score, executor.TrainStep(batches));
  TANDEM_ASSIGN_OR_RETURN(const Inference inference,
                          executor.Infer(batches, /*keeps_outputs=*/true));
  for (auto& [name, parameter] : NamedParameters(executor.stages())) {
    EXPECT_TRUE(parameter.grad().defined() &&
                parameter.grad().cpu().allclose(expected.gradients.at(name),
                                                1e-4, 1e-6))
        << name << " in schedule " << executor.schedule().name;
    at::Tensor tensor = parameter;
    tensor.mutable_grad().reset();
  }
  if (!executor.has_last_stage()) return absl::OkStatus();
  EXPECT_NEAR(score.loss(), expected.loss, 1e-5);
  EXPECT_EQ(inference.outputs.size(), expected.outputs.size());
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    EXPECT_TRUE(inference.outputs[i].cpu().equal(expected.outputs[i])) << i;
  }
  return absl::OkStatus();
}

absl::Status RunCell(const Cell& cell, const PipelineLayout& layout) {
  TANDEM_ASSIGN_OR_RETURN(const auto executor, Make(cell, layout));
  const LayerSpecs specs = Specs(cell.features);
  for (const int count :
       {cell.schedule.microbatches, (cell.schedule.microbatches + 1) / 2}) {
    TANDEM_RETURN_IF_ERROR(
        RunStep(*executor, specs, BatchesOf(cell.rows, cell.features, count)));
  }
  return absl::OkStatus();
}

std::vector<Cell> RandomCells(int count, int devices, std::mt19937& random) {
  std::vector<Cell> cells;
  for (int i = 0; i < count; ++i) {
    const int most = devices > 2 ? 3 : 4;
    const int microbatches = 1 + static_cast<int>(random() % 6);
    Cell cell = {RandomSchedule({devices, most, microbatches}, random)};
    const auto facts =
        ValidateSchedule(cell.schedule, {cell.schedule.microbatches, 0});
    EXPECT_TRUE(facts.ok()) << facts.status();
    cell.checkpointing = static_cast<ActivationCheckpointing>(random() % 3);
    cells.push_back(std::move(cell));
  }
  return cells;
}

TEST(OwnSchedulesTest, RunOnTheDevicesOfAProcess) {
  std::mt19937 random(1);
  for (int devices = 1; devices <= 4; ++devices) {
    PipelineLayout layout;
    layout.devices.assign(static_cast<size_t>(devices), c10::kCPU);
    for (const Cell& cell : RandomCells(30, devices, random)) {
      const absl::Status status = RunCell(cell, layout);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
}

// TestBackend(), if it is told, else both of the host's.
std::vector<std::string> Backends() {
  if (std::getenv("TANDEM_TEST_BACKEND") != nullptr) return {TestBackend()};
  return {"gloo", "shm"};
}

std::vector<c10::Device> DevicesOf(int rank, int count,
                                   const std::string& backend) {
  const auto size = static_cast<size_t>(count);
  if (backend != "sim_nccl") return std::vector<c10::Device>(size, c10::kCPU);
  const std::vector<c10::Device> all = SimDevices(count * (rank + 1));
  return {all.end() - count, all.end()};
}

// Simulated devices are made before a process's first backward.
[[maybe_unused]] const bool has_devices =
    !DevicesOf(0, 1, Backends().front()).empty();

absl::Status RunOverRanks(const std::vector<Cell>& cells, int ranks,
                          int devices_per_rank, const std::string& backend) {
  CommunicatorOptions options;
  options.backend = backend;
  options.all_local = true;
  options.timeout = std::chrono::seconds(30);
  return RunThreadRanks(
      ranks,
      [&](Communicator& world) -> absl::Status {
        PipelineLayout layout;
        layout.devices = DevicesOf(world.rank(), devices_per_rank, backend);
        layout.group = &world;
        for (const Cell& cell : cells) {
          TANDEM_RETURN_IF_ERROR(RunCell(cell, layout));
        }
        return absl::OkStatus();
      },
      options);
}

TEST(OwnSchedulesTest, RunOverRanks) {
  std::mt19937 random(2);
  for (const auto& [ranks, devices] :
       {std::pair(2, 1), std::pair(3, 1), std::pair(2, 2)}) {
    const auto cells = RandomCells(30, ranks * devices, random);
    for (const std::string& backend : Backends()) {
      const absl::Status status = RunOverRanks(cells, ranks, devices, backend);
      EXPECT_TRUE(status.ok())
          << status << ", " << ranks << " ranks, " << backend;
    }
  }
}

// The receiver asks for the last one first.
constexpr char kBackwards[] =
    "F0 F1 F2 F3 B3 B2 B1 B0\n"
    "F3 B3 F2 B2 F1 B1 F0 B0";
// Both go from the last to the first.
constexpr char kDescending[] =
    "F3 F2 F1 F0 B3 B2 B1 B0\n"
    "F3 B3 F2 B2 F1 B1 F0 B0";

TEST(OwnSchedulesTest, LargeMessagesMayBeTakenInAnyOrder) {
  std::vector<Cell> cells;
  for (const char* text : {kBackwards, kDescending}) {
    const Schedule schedule = *ParseSchedule(text, text);
    cells.push_back({schedule});
    // 400 KiB each: more than is on its way at once.
    cells.push_back({schedule, ActivationCheckpointing::kNever, 800, 128});
  }
  for (const std::string& backend : Backends()) {
    const absl::Status status = RunOverRanks(cells, 2, 1, backend);
    EXPECT_TRUE(status.ok()) << status << ", " << backend;
  }
}

// The running statistics are those of the batch, in whatever order its
// microbatches come.
TEST(OwnSchedulesTest, DeferredStatisticsKnowNoOrder) {
  const LayerSpecs specs = {Conv2dLayer("conv", {2, 4, 3}),
                            BatchNorm2dLayer("bn1", 4),
                            ReluLayer("relu"),
                            BatchNorm2dLayer("bn2", 4),
                            GlobalAvgPool2dLayer("pool"),
                            FlattenLayer("flat"),
                            LinearLayer("head", 4, kClasses)};
  std::vector<Batch> batches;
  for (int m = 0; m < 4; ++m) {
    const std::string name = absl::StrCat("images ", m);
    batches.push_back(
        {at::randn({3, 2, 6, 6}, GeneratorFor(kSeed, name)).add(3 * m),
         at::arange(3), 3});
  }
  NamedTensors expected;
  for (const char* text :
       {"F0 F1 F2 F3 B0 B1 B2 B3\nF0 F1 F2 F3 B0 B1 B2 B3", kDescending,
        kBackwards, "F2 F0 B2 B0 F3 F1 B3 B1\nF2 B2 F0 B0 F3 F1 B3 B1"}) {
    PipelineModelOptions model;
    model.seed = kSeed;
    model.cuts = {3};
    const Schedule schedule = *ParseSchedule("own", text);
    const PipelineLayout layout = {{c10::kCPU, c10::kCPU}, nullptr};
    PipelineOptions options;
    options.defers_statistics = true;
    const auto executor = PipelineExecutor::Create(
        schedule, *MakeStages(specs, schedule, layout, model, CrossEntropy),
        layout, options);
    ASSERT_TRUE(executor.ok()) << executor.status();
    for (const int count : {4, 3, 4}) {
      const auto done =
          (*executor)->TrainStep({batches.begin(), batches.begin() + count});
      ASSERT_TRUE(done.ok()) << done.status();
    }
    const NamedTensors found = NamedBuffers((*executor)->stages());
    if (expected.empty()) expected = found;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(found[i].second.equal(expected[i].second))
          << found[i].first << "\n"
          << text;
    }
  }
}

}  // namespace
}  // namespace tandem
