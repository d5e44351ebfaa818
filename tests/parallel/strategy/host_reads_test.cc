// How often a step reads numbers from a device, and so waits for it.

#include <ATen/Tensor.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/schedule/schedules.h"
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

// Of one step, and of one evaluation.
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

// As a user may write it: the score is there at once.
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
          WithZLoss(CrossEntropy, 1e-4)}) {
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

}  // namespace
}  // namespace tandem::host_reads_test
