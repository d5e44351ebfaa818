// What layers draw from LibTorch's default generator (torch::nn::Dropout, say)
// is a function of the step, the layer and the microbatch.

#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/rnn.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::hybrid_draws_test {
namespace {

namespace nn = torch::nn;

// Tokens attend to each other, with dropout.
class SelfAttention : public nn::Module {
 public:
  SelfAttention()
      : attention_(register_module(
            "attention",
            nn::MultiheadAttention(
                nn::MultiheadAttentionOptions(8, 2).dropout(0.3)))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor tokens = x.view({-1, 2, 8}).transpose(0, 1);
    const at::Tensor y =
        std::get<0>(attention_->forward(tokens, tokens, tokens));
    return y.transpose(0, 1).reshape({-1, 16});
  }

 private:
  nn::MultiheadAttention attention_;
};

LayerSpec DropoutOfLibTorch(const std::string& name) {
  return ModuleLayer<nn::DropoutImpl>(
      name, "Dropout", [] { return std::make_shared<nn::DropoutImpl>(0.5); });
}

LayerSpecs Specs() {
  return {
      LinearLayer("a", 6, 16),
      DropoutOfLibTorch("drop_a"),
      ModuleLayer<SelfAttention>(
          "attend", "SelfAttention",
          [] { return std::make_shared<SelfAttention>(); }),
      LinearLayer("b", 16, 16),
      ModuleLayer<nn::RReLUImpl>(
          "rrelu", "RReLU", [] { return std::make_shared<nn::RReLUImpl>(); }),
      LinearLayer("c", 16, 16),
      DropoutOfLibTorch("drop_c"),
      LinearLayer("d", 16, 5)};
}

class HybridDrawsTest : public DeviceTypeTest {
 protected:
  static LabJob Job() {
    LabJob job;
    job.specs = Specs;
    job.loss = CrossEntropy;
    job.batch = [](int step) -> Batch {
      const at::Generator generator = GeneratorFor(step, "batch");
      return {at::randn({12, 6}, generator),
              at::randint(5, {12}, generator, at::kLong), 12};
    };
    return job;
  }

  static absl::StatusOr<LabOutcome> Train(
      const std::string& schedule, int stages,
      ActivationCheckpointing checkpointing,
      const SelectiveCheckpointing& selective = {}) {
    LabLayout layout = {"", schedule, 1, 1, stages, 1, 4, checkpointing};
    layout.device_pool = Devices(stages);
    LabJob job = Job();
    job.change = [selective](MeshStrategyOptions& options) {
      options.pipeline.selective = selective;
    };
    return TrainInLab(layout, job);
  }

  // Of two ranks, and their losses, by rank.
  static absl::StatusOr<LabOutcome> TrainOverRanks(
      ActivationCheckpointing checkpointing,
      std::vector<std::vector<double>>* losses) {
    LabJob job = Job();
    job.change = [](MeshStrategyOptions& options) {
      options.devices = {TestDevice()};
    };
    losses->resize(2);
    job.step = [&](const LabRank& rank, const Batch& batch,
                   int) -> absl::StatusOr<Score> {
      TANDEM_ASSIGN_OR_RETURN(const Score score,
                              rank.strategy->TrainStep(batch, 0.1));
      (*losses)[static_cast<size_t>(rank.rank)].push_back(score.loss_sum);
      return score;
    };
    return TrainInLab({"", "1f1b", 1, 2, 1, 1, 4, checkpointing}, job);
  }
};
TANDEM_ON_DEVICE_TYPES(HybridDrawsTest);

TEST_P(HybridDrawsTest, AreTheSameWhenALayerIsComputedAgain) {
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    for (int stages : {1, 2}) {
      const auto kept =
          Train(schedule, stages, ActivationCheckpointing::kNever);
      for (const auto again : {ActivationCheckpointing::kAlways,
                               ActivationCheckpointing::kExceptLast}) {
        at::randn({3}, TestDevice());  // moves the device's generator
        const auto run = Train(schedule, stages, again);
        SCOPED_TRACE(absl::StrCat(schedule, " ", stages));
        ExpectSameBits(run, kept);
      }
    }
  }
}

// Layer by layer, in groups of two, and what draws alone.
TEST_P(HybridDrawsTest, AreTheSameWhenGroupsAreComputedAgain) {
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    for (int stages : {1, 2}) {
      const auto kept =
          Train(schedule, stages, ActivationCheckpointing::kNever);
      for (const SelectiveCheckpointing& selective :
           {SelectiveCheckpointing{"", 1}, SelectiveCheckpointing{"", 2},
            SelectiveCheckpointing{"drop|rrelu|attend", 0}}) {
        at::randn({3}, TestDevice());  // moves the device's generator
        SCOPED_TRACE(absl::StrCat(schedule, " ", stages, selective.layers));
        ExpectSameBits(
            Train(schedule, stages, ActivationCheckpointing::kNever, selective),
            kept);
      }
    }
  }
}

TEST_P(HybridDrawsTest, AreTheSameWhenRanksComputeALayerAgain) {
  std::vector<std::vector<double>> losses;
  const auto kept = TrainOverRanks(ActivationCheckpointing::kNever, &losses);
  for (const auto again : {ActivationCheckpointing::kAlways,
                           ActivationCheckpointing::kExceptLast}) {
    std::vector<std::vector<double>> its_losses;
    ExpectSameBits(TrainOverRanks(again, &its_losses), kept);
    EXPECT_EQ(its_losses, losses);
  }
}

// Stages in threads of their own draw as they come.
TEST_P(HybridDrawsTest, AreTheSameInEveryRunAndCut) {
  const auto one = Train("1f1b", 1, ActivationCheckpointing::kNever);
  for (int stages : {2, 4}) {
    for (int i = 0; i < 3; ++i) {
      const auto run = Train("1f1b", stages, ActivationCheckpointing::kNever);
      SCOPED_TRACE(absl::StrCat(stages, " stages"));
      ExpectSameBits(run, one);
    }
  }
}

// Where it cannot be helped, creation says so.
TEST(HybridDrawsOnCudaTest, DropoutInsideOfCudnnIsRefusedByName) {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule("1f1b", {1, 1, 2});
  options.devices = {c10::Device(c10::kCUDA, 0)};
  options.pipeline.checkpointing = ActivationCheckpointing::kAlways;
  const LayerSpec lstm = {"recur", "LSTM", [](uint64_t) {
                            Layer layer;
                            layer.name = "recur";
                            layer.module = std::make_shared<nn::LSTMImpl>(
                                nn::LSTMOptions(2, 2).dropout(0.5));
                            return layer;
                          }};
  const auto strategy =
      MeshStrategy::Create({lstm}, CrossEntropy, options, nullptr);
  EXPECT_THAT(strategy.status(),
              InvalidArgument("recur (torch::nn::LSTMImpl)"));
}

}  // namespace
}  // namespace tandem::hybrid_draws_test
