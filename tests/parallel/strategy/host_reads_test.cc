// How often a step reads numbers from a device, and so waits for it.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/gathered_tensors.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"

namespace tandem::host_reads_test {
namespace {

std::atomic<int> reads{0};

bool IsOnDevice(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         !value.toTensor().is_cpu();
}

std::unique_ptr<at::ObserverContext> Count(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  const bool is_copy = std::strcmp(call.name(), "aten::copy_") == 0;
  const bool is_item =
      std::strcmp(call.name(), "aten::_local_scalar_dense") == 0;
  if (is_copy && !IsOnDevice(inputs[0]) && IsOnDevice(inputs[1])) ++reads;
  if (is_item && IsOnDevice(inputs[0])) ++reads;
  return nullptr;
}

// While it lives, on every thread.
class ReadCounter {
 public:
  ReadCounter()
      : handle_(at::addGlobalCallback(
            at::RecordFunctionCallback(Count).needsInputs(true).scopes(
                {at::RecordScope::FUNCTION}))) {
    reads = 0;
  }
  ~ReadCounter() { at::removeCallback(handle_); }
  int count() const { return reads; }

 private:
  const at::CallbackHandle handle_;
};

constexpr uint64_t kSeed = 3;
constexpr int64_t kWidth = 4;
constexpr int64_t kSamples = 16;

// In its forward it adds a loss.
LayerSpec Linear(const std::string& name) {
  const auto make = [name](uint64_t seed) {
    auto module = std::make_shared<torch::nn::Module>();
    module->register_parameter(
        "weight", at::randn({kWidth, kWidth}, GeneratorFor(seed, name)));
    return Layer{name, module, [module](const at::Tensor& x) {
                   const at::Tensor y = at::linear(x, module->parameters()[0]);
                   AddAuxiliaryLoss("size", y.square().mean());
                   return y;
                 }};
  };
  return {name, "Linear", make};
}

LayerSpecs Specs() { return {Linear("first"), Linear("second")}; }

Batch Example() {
  const at::Generator generator = GeneratorFor(kSeed, "batch");
  return {at::randn({kSamples, kWidth}, generator),
          at::randint(kWidth, {kSamples}, generator, at::kLong), kSamples};
}

// The reads of one step, and of one evaluation.
using Reads = std::pair<int, int>;

absl::StatusOr<Reads> ReadsOf(Strategy& strategy) {
  TANDEM_RETURN_IF_ERROR(strategy.TrainStep(Example(), 0.1).status());
  Reads found;
  {
    const ReadCounter counter;
    TANDEM_RETURN_IF_ERROR(strategy.TrainStep(Example(), 0.1).status());
    found.first = counter.count();
  }
  const ReadCounter counter;
  TANDEM_ASSIGN_OR_RETURN(const Score score, strategy.Evaluate(Example()));
  found.second = counter.count();
  EXPECT_GT(score.count, 0);
  return found;
}

absl::StatusOr<Reads> InStages(const LossFunction& loss, int microbatches) {
  const std::vector<c10::Device> devices = SimDevices(2);
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule,
                          MakeSchedule("1f1b", {2, 1, microbatches}));
  options.cuts = {1};
  options.devices = devices;
  options.seed = kSeed;
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshStrategy> strategy,
      MeshStrategy::Create(Specs(), loss, options, nullptr));
  return ReadsOf(*strategy);
}

absl::StatusOr<Reads> InOneReplica(const LossFunction& loss, int microbatches) {
  const c10::Device device = SimDevices(2).front();
  Reads found;
  TANDEM_RETURN_IF_ERROR(
      RunThreadRanks(1, [&](Communicator& world) -> absl::Status {
        ReplicatedOptions options;
        options.device = device;
        options.accumulation_steps = microbatches;
        TANDEM_ASSIGN_OR_RETURN(
            const auto strategy,
            MakeReplicated(MakeLayers(Specs(), kSeed), loss, options, world));
        TANDEM_ASSIGN_OR_RETURN(found, ReadsOf(*strategy));
        return absl::OkStatus();
      }));
  return found;
}

// A user may write it so: the score is there at once.
LossResult WithScoreAtOnce(const at::Tensor& outputs,
                           const at::Tensor& targets) {
  LossResult result;
  result.loss = CrossEntropy(outputs, targets).loss;
  result.score.count = targets.size(0);
  result.score.loss_sum =
      result.loss.item<double>() * static_cast<double>(targets.size(0));
  return result;
}

class HostReadsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(2); }  // before any backward
};

// In training: the score's, and on each device those of added losses.
TEST_F(HostReadsTest, APipelineReadsOnceWhateverTheMicrobatches) {
  for (const int microbatches : {2, 8}) {
    for (const LossFunction& loss :
         {LossFunction(CrossEntropy), CrossEntropyIgnoring(0),
          WithZLoss(CrossEntropy, 1e-4), SmoothedCrossEntropy(0.1)}) {
      const auto found = InStages(loss, microbatches);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, Reads(3, 1)) << microbatches;
    }
  }
}

TEST_F(HostReadsTest, SoDoesAReplica) {
  for (const int microbatches : {1, 4}) {
    for (const LossFunction& loss :
         {LossFunction(CrossEntropy), CrossEntropyIgnoring(0)}) {
      const auto found = InOneReplica(loss, microbatches);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, Reads(2, 1)) << microbatches;
    }
  }
}

TEST_F(HostReadsTest, AScoreAtOnceIsReadAtOnce) {
  for (const int microbatches : {2, 8}) {
    const auto found = InStages(WithScoreAtOnce, microbatches);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, Reads(2 + microbatches, microbatches));
  }
}

// Rank r has r tensors more than none: of several dtypes and shapes.
NamedTensors TensorsOf(int rank) {
  NamedTensors tensors;
  for (int i = 0; i < rank; ++i) {
    tensors.emplace_back(absl::StrCat("rank ", rank, ".tensor", i),
                         at::full({i, 3}, rank, at::kDouble).to(TestDevice()));
    tensors.emplace_back(absl::StrCat("rank ", rank, ".scalar", i),
                         at::full({}, i, at::kLong).to(TestDevice()));
  }
  return tensors;
}

at::Tensor Transposed() {
  return at::arange(6).view({2, 3}).to(TestDevice()).t();
}

// Keeps what comes, and in which order.
class Collector : public TensorSink {
 public:
  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override {
    return a.name > b.name;
  }
  absl::Status Begin(std::vector<TensorInfo> given) override {
    infos = std::move(given);
    return absl::OkStatus();
  }
  absl::Status Add(const at::Tensor& values) override {
    if (fails_at == tensors.size()) return absl::DataLossError("the disk");
    tensors.emplace_back(infos.at(tensors.size()).name, values.cpu().clone());
    return absl::OkStatus();
  }

  size_t fails_at = 1000;
  std::vector<TensorInfo> infos;
  NamedTensors tensors;
};

TEST(GatheredTensorsTest, RankZeroGetsAllInTheSinksOrder) {
  ExpectOk(RunDeviceRanks(4, [](Communicator& world) -> absl::Status {
    Collector all;
    TANDEM_RETURN_IF_ERROR(
        StreamToRank0({TensorsOf(world.rank()), {}}, world, all));
    if (world.rank() != 0) {
      EXPECT_TRUE(all.infos.empty());
      EXPECT_TRUE(all.tensors.empty());
      return absl::OkStatus();
    }
    NamedTensors expected;
    for (int rank = 0; rank < 4; ++rank) {
      for (const auto& each : TensorsOf(rank)) expected.push_back(each);
    }
    std::sort(expected.begin(), expected.end(),
              [](const auto& a, const auto& b) { return a.first > b.first; });
    EXPECT_EQ(all.tensors.size(), expected.size());
    EXPECT_EQ(all.infos.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(all.tensors[i].first, expected[i].first);
      EXPECT_TRUE(all.tensors[i].second.equal(expected[i].second.cpu()));
      EXPECT_EQ(all.infos[i].dtype, expected[i].second.scalar_type());
      EXPECT_EQ(all.infos[i].sizes, expected[i].second.sizes());
    }
    return absl::OkStatus();
  }));
}

TEST(GatheredTensorsTest, OneRankKeepsItsOwn) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) -> absl::Status {
    const NamedTensors mine = {{"a", Transposed()}};
    Collector all;
    TANDEM_RETURN_IF_ERROR(StreamToRank0({mine, {}}, world, all));
    EXPECT_EQ(all.tensors.size(), 1u);
    EXPECT_TRUE(all.tensors[0].second.equal(mine[0].second.cpu()));
    return absl::OkStatus();
  }));
}

TEST(GatheredTensorsTest, StridesDoNotMatter) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    const at::Tensor tensor = Transposed();
    Collector all;
    TANDEM_RETURN_IF_ERROR(StreamToRank0(
        {{{absl::StrCat(world.rank()), tensor}}, {}}, world, all));
    if (world.rank() == 0) {
      EXPECT_TRUE(all.tensors.at(0).second.equal(tensor.cpu()));
    }
    return absl::OkStatus();
  }));
}

// Columns of one tensor, and runs of the memory of another, of which one rank
// has nothing; between others in the sink's order.
TEST(GatheredTensorsTest, SlicesComeJoined) {
  for (const int ranks : {1, 3}) {
    ExpectOk(RunDeviceRanks(ranks, [ranks](Communicator& world) {
      const int64_t rank = world.rank();
      const at::Tensor whole = at::arange(42).view({7, 6});
      const int64_t columns = 6 / ranks;
      StatePart part;
      part.tensors = {
          {"columns", whole.narrow(1, columns * rank, columns)
                          .contiguous()
                          .to(TestDevice())},
          {absl::StrCat("d", rank), at::full({2}, rank).to(TestDevice())}};
      part.slices["columns"] =
          SliceOfShard({7, 6}, {{{0, 7}}, {{columns * rank, columns}}});
      if (rank != 1) {
        const int64_t begin = rank == 0 ? 0 : 11;
        const int64_t end = ranks == 1 || rank == 2 ? 42 : 11;
        part.tensors.emplace_back("run", whole.t()
                                             .contiguous()
                                             .view({-1})
                                             .narrow(0, begin, end - begin)
                                             .to(TestDevice()));
        part.slices["run"] = {{7, 6}, {1, 7}, begin};
      }
      Collector all;
      TANDEM_RETURN_IF_ERROR(StreamToRank0(part, world, all));
      if (rank != 0) return absl::OkStatus();
      EXPECT_EQ(all.tensors.size(), static_cast<size_t>(ranks) + 2);
      EXPECT_EQ(all.tensors.front().first, "run");
      EXPECT_EQ(all.tensors.back().first, "columns");
      EXPECT_TRUE(all.tensors.front().second.equal(whole));
      EXPECT_TRUE(all.tensors.back().second.equal(whole));
      EXPECT_EQ(all.infos.back().sizes, (std::vector<int64_t>{7, 6}));
      return absl::OkStatus();
    }));
  }
}

// A full disk, say: rank 0 aborts the group, and nobody waits for it.
TEST(GatheredTensorsTest, WhatTheSinkSaysEndsIt) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    Collector all;
    all.fails_at = 3;
    const absl::Status failed =
        StreamToRank0({TensorsOf(world.rank()), {}}, world, all);
    if (!failed.ok()) world.Abort(failed);
    EXPECT_FALSE(failed.ok() && world.rank() == 0);
    EXPECT_TRUE(failed.ok() || absl::StrContains(failed.message(), "the disk"))
        << failed;
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::host_reads_test
