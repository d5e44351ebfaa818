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
#include "core/checkpoint/fingerprint.h"
#include "core/comm/communicator.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {
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

struct Trained {
  std::string weights;
  std::vector<double> losses;
};

class HybridDrawsTest : public DeviceTypeTest {
 protected:
  static MeshStrategyOptions Options(const std::string& schedule, int stages,
                                     ActivationCheckpointing checkpointing) {
    MeshStrategyOptions options;
    options.schedule = *MakeSchedule(schedule, {stages, 1, 4});
    options.cuts = *UniformCuts(static_cast<int64_t>(Specs().size()), stages);
    options.pipeline.checkpointing = checkpointing;
    return options;
  }

  static Trained Train(const std::string& schedule, int stages,
                       ActivationCheckpointing checkpointing) {
    MeshStrategyOptions options = Options(schedule, stages, checkpointing);
    options.devices = Devices(stages);
    return Train(options, nullptr);
  }

  static Trained Train(const MeshStrategyOptions& options,
                       Communicator* world) {
    const auto strategy =
        MeshStrategy::Create(Specs(), CrossEntropy, options, world);
    EXPECT_TRUE(strategy.ok()) << strategy.status();
    if (!strategy.ok()) return {};
    Trained run;
    for (int i = 0; i < 3; ++i) {
      const at::Generator generator = GeneratorFor(i, "batch");
      const Batch batch = {at::randn({12, 6}, generator),
                           at::randint(5, {12}, generator, at::kLong), 12};
      const auto score = (*strategy)->TrainStep(batch, 0.1);
      EXPECT_TRUE(score.ok()) << score.status();
      if (!score.ok()) return {};
      run.losses.push_back(score->loss_sum);
    }
    run.weights = WeightsSha256((*strategy)->Parameters());
    return run;
  }

  // By rank: its stage's weights, and losses.
  static std::vector<Trained> TrainOverRanks(
      int ranks, ActivationCheckpointing checkpointing) {
    std::vector<Trained> runs(static_cast<size_t>(ranks));
    const absl::Status status = RunThreadRanks(ranks, [&](Communicator& world) {
      MeshStrategyOptions options = Options("1f1b", ranks, checkpointing);
      options.devices = {TestDevice()};
      runs[static_cast<size_t>(world.rank())] = Train(options, &world);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return runs;
  }
};
TANDEM_ON_DEVICE_TYPES(HybridDrawsTest);

TEST_P(HybridDrawsTest, AreTheSameWhenALayerIsComputedAgain) {
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    for (int stages : {1, 2}) {
      const Trained kept =
          Train(schedule, stages, ActivationCheckpointing::kNever);
      for (const auto again : {ActivationCheckpointing::kAlways,
                               ActivationCheckpointing::kExceptLast}) {
        at::randn({3}, TestDevice());  // moves the device's generator
        const Trained run = Train(schedule, stages, again);
        EXPECT_EQ(run.weights, kept.weights) << schedule << " " << stages;
        EXPECT_EQ(run.losses, kept.losses);
      }
    }
  }
}

TEST_P(HybridDrawsTest, AreTheSameWhenRanksComputeALayerAgain) {
  const auto kept = TrainOverRanks(2, ActivationCheckpointing::kNever);
  for (const auto again : {ActivationCheckpointing::kAlways,
                           ActivationCheckpointing::kExceptLast}) {
    const auto runs = TrainOverRanks(2, again);
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      EXPECT_EQ(runs[rank].weights, kept[rank].weights) << rank;
      EXPECT_EQ(runs[rank].losses, kept[rank].losses) << rank;
    }
  }
}

// Stages in threads of their own draw as they come.
TEST_P(HybridDrawsTest, AreTheSameInEveryRunAndCut) {
  const Trained one = Train("1f1b", 1, ActivationCheckpointing::kNever);
  for (int stages : {2, 4}) {
    for (int i = 0; i < 3; ++i) {
      const Trained run =
          Train("1f1b", stages, ActivationCheckpointing::kNever);
      EXPECT_EQ(run.weights, one.weights) << stages << " stages";
      EXPECT_EQ(run.losses, one.losses);
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
  EXPECT_EQ(strategy.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(strategy.status().message()),
              testing::HasSubstr("recur (torch::nn::LSTMImpl)"));
}

}  // namespace
}  // namespace tandem
