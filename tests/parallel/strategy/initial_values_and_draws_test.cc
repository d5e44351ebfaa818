// Replicas of a mesh, and copies of tied weights, begin alike.

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::initial_values_and_draws_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Values from LibTorch's default generator, as torch::nn makes them, and a
// buffer that tells which rank made it.
LayerSpec Careless(const std::string& name, int64_t in, int64_t out) {
  return {name, "Linear", [=](uint64_t) {
            const auto module =
                std::make_shared<torch::nn::LinearImpl>(in, out);
            module->register_buffer(
                "made_by", at::full({1}, ThisThreadsRank(), at::kFloat));
            return Layer{name, module, [module](const at::Tensor& x) {
                           return module->forward(x);
                         }};
          }};
}

Batch BatchOf(int number, int64_t replica) {
  return RandomBatch({{6}, 6}, /*size=*/4, static_cast<uint64_t>(replica),
                     number);
}

LabLayout LayoutOf(int replicas, int stages) {
  return {"", "1f1b", replicas, stages, 1, 1, 2 * replicas};
}

LabJob Job(const std::function<LayerSpecs()>& specs) {
  LabJob job;
  job.specs = specs;
  job.loss = CrossEntropy;
  return job;
}

LayerSpecs TwoLinears() {
  return {LinearLayer("a", 6, 8), LinearLayer("b", 8, 6)};
}

TEST(HybridInitialValuesTest, AreTheFirstReplicasWhereLayersDrawAsTheyLike) {
  for (const bool broadcast_buffers : {true, false}) {
    LabJob job = Job([] {
      return LayerSpecs{Careless("a", 6, 8), Careless("b", 8, 6)};
    });
    job.change = [&](MeshStrategyOptions& options) {
      options.ddp.broadcast_buffers = broadcast_buffers;
    };
    // By rank, what it holds at first and after two steps.
    std::vector<std::string> hashes(4);
    ExpectOk(OnLabRanks(
        LayoutOf(2, 2), job, [&](const LabRank& rank) -> absl::Status {
          std::string& text = hashes[static_cast<size_t>(rank.rank)];
          for (int step = 0; step < 3; ++step) {
            NamedTensors mine = rank.strategy->Parameters();
            for (auto& each : rank.strategy->Buffers()) mine.push_back(each);
            absl::StrAppend(&text, WeightsSha256(mine), " ");
            TANDEM_RETURN_IF_ERROR(
                rank.strategy->TrainStep(BatchOf(step, rank.replica), 0.1)
                    .status());
          }
          return absl::OkStatus();
        }));
    EXPECT_EQ(hashes[0], hashes[2]);
    EXPECT_EQ(hashes[1], hashes[3]);
    EXPECT_NE(hashes[0], hashes[1]);
  }
}

// A linear layer whose weight is that of `first`, or drawn anew.
LayerSpec TiedCareless(const std::string& name) {
  LayerSpec spec{name, "Linear", nullptr};
  spec.links.ties = {{"weight", "first.weight"}};
  spec.make_tied = [name](uint64_t, const NamedTensors& shared) {
    const auto module = std::make_shared<torch::nn::LinearImpl>(
        torch::nn::LinearOptions(6, 6).bias(false));
    if (!shared.empty()) module->weight = shared[0].second;
    return Layer{name, module,
                 [module](const at::Tensor& x) { return module->forward(x); }};
  };
  return spec;
}

TEST(HybridInitialValuesTest, CopiesOfTiedWeightsAreTheFirstMembers) {
  for (const bool reproducible : {false, true}) {
    LabJob job = Job([] {
      return LayerSpecs{Careless("first", 6, 6), ReluLayer("r"),
                        TiedCareless("last")};
    });
    job.change = [&](MeshStrategyOptions& options) {
      options.reproducible = reproducible;
    };
    ExpectOk(OnLabRanks(
        LayoutOf(2, 2), job, [&](const LabRank& rank) -> absl::Status {
          for (int step = 0; step < 2; ++step) {
            at::Tensor weight;
            for (const auto& [name, tensor] : rank.strategy->Parameters()) {
              if (name.find("weight") != std::string::npos) weight = tensor;
            }
            TANDEM_ASSIGN_OR_RETURN(
                const std::vector<std::string> all,
                rank.world->AllGatherString(WeightsSha256({{"w", weight}})));
            for (const std::string& each : all) EXPECT_EQ(each, all[0]);
            TANDEM_RETURN_IF_ERROR(
                rank.strategy->TrainStep(BatchOf(step, rank.replica), 0.1)
                    .status());
          }
          return absl::OkStatus();
        }));
  }
}

// What every rank says when its model cannot be trained with the others'.
std::vector<std::string> Refusals(
    int ranks, int stages, const std::function<LayerSpecs(int rank)>& specs) {
  std::vector<std::string> said(static_cast<size_t>(ranks));
  ExpectOk(RunThreadRanks(ranks, [&](Communicator& world) -> absl::Status {
    const LayerSpecs mine = specs(world.rank());
    said[static_cast<size_t>(world.rank())] = std::string(
        MeshStrategy::Create(mine, CrossEntropy,
                             LabOptions(LayoutOf(ranks / stages, stages),
                                        static_cast<int64_t>(mine.size())),
                             &world)
            .status()
            .message());
    return world.Barrier();  // the group is still of use
  }));
  return said;
}

TEST(HybridInitialValuesTest, ModelsThatDifferAreRefusedOnEveryRank) {
  const auto said = Refusals(4, 2, [](int rank) {
    return LayerSpecs{LinearLayer("a", 6, 8), rank == 3
                                                  ? LinearLayer("b", 8, 7)
                                                  : LinearLayer("b", 8, 6)};
  });
  for (const std::string& each : said) {
    EXPECT_THAT(each, AllOf(HasSubstr("stage 1"), HasSubstr("rank 3"),
                            HasSubstr("b.weight"), HasSubstr("[7, 8]")));
  }
}

TEST(HybridInitialValuesTest, ALayerThatOneRankCannotMakeIsEveryRanksError) {
  const auto said = Refusals(4, 2, [](int rank) {
    LayerSpecs specs = TwoLinears();
    if (rank != 2) return specs;
    specs[0].make = [](uint64_t) -> Layer {
      TORCH_CHECK(false, "no file of embeddings");
    };
    return specs;
  });
  for (size_t rank = 0; rank < said.size(); ++rank) {
    EXPECT_THAT(said[rank], HasSubstr("no file of embeddings"));
    if (rank != 2) {
      EXPECT_THAT(said[rank], HasSubstr("rank 2"));
    }
  }
}

TEST(HybridInitialValuesTest, TwoLayersOfOneNameAreRefused) {
  const auto said = Refusals(2, 2, [](int) {
    return LayerSpecs{LinearLayer("fc", 6, 6), LinearLayer("fc", 6, 6)};
  });
  for (const std::string& each : said) {
    EXPECT_THAT(each, HasSubstr("layers 0 and 1 are both called 'fc'"));
  }
}

// What layers draw from LibTorch's default generator (torch::nn::Dropout, say)
// is a function of the step, the layer and the microbatch.

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

  // The outcome of two ranks, and their losses, by rank.
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
}  // namespace tandem::initial_values_and_draws_test
