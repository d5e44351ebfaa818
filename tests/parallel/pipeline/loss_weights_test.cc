// Losses that leave predictions out: the gradient is that of the uncut batch,
// whatever it is cut into.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::loss_weights_test {
namespace {

using testing::ElementsAre;

constexpr int64_t kIgnored = -100;
constexpr int64_t kSize = 24;
constexpr int64_t kTokens = 5;
constexpr int64_t kClasses = 7;
constexpr uint64_t kSeed = 4;

LayerSpecs Specs() {
  LayerSpecs specs = {LinearLayer("in", 6, 8)};
  for (int i = 0; i < 6; ++i) {
    specs.push_back(LinearLayer(absl::StrCat("l", i), 8, 8));
  }
  specs.push_back(LinearLayer("out", 8, kClasses));
  return specs;
}

// Sequences of different lengths: the first ones are full, of the following
// the more is ignored the later they come, and the last are padding alone, at
// least as many as a microbatch has. `padded` off: all targets count.
Batch PaddedBatch(bool padded = true) {
  const at::Generator generator = GeneratorFor(kSeed, "batch");
  Batch batch = {at::randn({kSize, kTokens, 6}, generator),
                 at::randint(kClasses, {kSize, kTokens}, generator, at::kLong),
                 kSize};
  for (int64_t i = 0; padded && i < kSize; ++i) {
    const int64_t length = i < 4            ? kTokens
                           : i >= kSize - 6 ? 0
                                            : 1 + (kSize - i) % kTokens;
    batch.targets[i].narrow(0, length, kTokens - length).fill_(kIgnored);
  }
  return batch;
}

Batch SamplesOf(const Batch& batch, int64_t first, int64_t size) {
  return {batch.inputs.narrow(0, first, size),
          batch.targets.narrow(0, first, size), size};
}

using Gradients = std::map<std::string, at::Tensor>;

// Gradients of LibTorch's own loss over all of the batch.
Gradients Expected(const Batch& batch, double z_loss = 0) {
  const LayerList layers = MakeLayers(Specs(), kSeed);
  const at::Tensor logits = Forward(layers, batch.inputs).flatten(0, 1);
  at::Tensor loss =
      at::cross_entropy_loss(logits, batch.targets.flatten(), /*weight=*/{},
                             at::Reduction::Mean, kIgnored);
  if (z_loss > 0) {
    loss = loss + logits.logsumexp(-1).square().mean().mul(z_loss);
  }
  loss.backward();
  Gradients gradients;
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    gradients[name] = parameter.grad();
  }
  return gradients;
}

// Losses' mean over the predictions that count.
double ExpectedLoss(const Batch& batch) {
  const LayerList layers = MakeLayers(Specs(), kSeed);
  return at::cross_entropy_loss(Forward(layers, batch.inputs).flatten(0, 1),
                                batch.targets.flatten(), {},
                                at::Reduction::Mean, kIgnored)
      .item<double>();
}

void ExpectGradients(const Strategy& strategy, const Gradients& expected) {
  EXPECT_FALSE(strategy.Gradients().empty());
  for (const auto& [name, gradient] : strategy.Gradients()) {
    EXPECT_TRUE(gradient.cpu().allclose(expected.at(name), 1e-4, 1e-6)) << name;
  }
}

LabJob JobOf(const LossFunction& loss, bool reproducible = false) {
  LabJob job;
  job.specs = Specs;
  job.loss = loss;
  job.change = [reproducible](MeshStrategyOptions& options) {
    options.seed = kSeed;
    options.reproducible = reproducible;
  };
  return job;
}

// Calls `check` with each rank's strategy and part of the batch.
using Check = std::function<absl::Status(Strategy&, const Batch&)>;
void OnRanks(const LabLayout& layout, const LossFunction& loss,
             const Batch& batch, const Check& check) {
  ExpectOk(OnLabRanks(layout, JobOf(loss), [&](const LabRank& rank) {
    const int64_t size = batch.size / layout.replicas;
    return check(*rank.strategy, SamplesOf(batch, rank.replica * size, size));
  }));
}

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts = LabLayouts(
      "gpipe 1x1x1, gpipe 1x1x2, 1f1b 1x1x4, 1f1b 1x2x1, "
      "interleaved_1f1b 1x1x2x2, looped_bfs 1x1x2x2, zb_h1 1x1x2, "
      "zb_v 1x1x2x2, 1f1b 2x1x1, 1f1b 3x1x2, zb_h1 2x2x1, gpipe 4x1x1, "
      "1f1b 2x1x2 always",
      /*microbatches=*/4);
  for (LabLayout& each : layouts) {
    if (each.replicas < 4) each.microbatches *= each.replicas;
  }
  return layouts;
}

TEST(LossWeightsTest, GradientsAreTheUncutBatchsInEveryLayout) {
  const Batch batch = PaddedBatch();
  const Gradients expected = Expected(batch);
  const double loss = ExpectedLoss(batch);
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    OnRanks(layout, CrossEntropyIgnoring(kIgnored), batch,
            [&](Strategy& strategy, const Batch& part) -> absl::Status {
              TANDEM_ASSIGN_OR_RETURN(const Score score,
                                      strategy.ComputeGradients(part));
              EXPECT_NEAR(score.loss(), loss, 1e-5);
              EXPECT_EQ(score.count, 63);
              ExpectGradients(strategy, expected);
              return strategy.Update(0.1);
            });
  }
}

// What layers and the loss add is a mean over samples.
TEST(LossWeightsTest, AuxiliaryLossesWeighBySamples) {
  const Batch batch = PaddedBatch();
  const Gradients expected = Expected(batch, 0.1);
  for (const LabLayout& layout : {Layouts()[1], Layouts()[10]}) {
    OnRanks(layout, WithZLoss(CrossEntropyIgnoring(kIgnored), 0.1), batch,
            [&](Strategy& strategy, const Batch& part) -> absl::Status {
              TANDEM_RETURN_IF_ERROR(strategy.ComputeGradients(part).status());
              ExpectGradients(strategy, expected);
              return strategy.SkipUpdate();
            });
  }
}

// The weights after two steps.
TensorsByName Trained(const LabLayout& layout, const LossFunction& loss,
                      const Batch& batch, bool reproducible = true) {
  LabJob job = JobOf(loss, reproducible);
  job.batch = [&](int) { return batch; };
  job.steps = 2;
  auto outcome = TrainInLab(layout, job);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok()) return {};
  EXPECT_EQ(outcome->model.size(), 2 * Specs().size());
  return std::move(outcome->model);
}

TEST(LossWeightsTest, ReproducibleBitsAreThoseOfOneDevice) {
  for (const bool padded : {true, false}) {
    const Batch batch = PaddedBatch(padded);
    const LossFunction loss = CrossEntropyIgnoring(kIgnored);
    const TensorsByName one = Trained({"one"}, loss, batch);
    for (const LabLayout& layout :
         LabLayouts("1f1b 2x1x1, 1f1b 3x1x2, zb_h1 2x2x1, gpipe 1x1x4")) {
      SCOPED_TRACE(layout.name);
      ExpectSameBits(Trained(layout, loss, batch), one);
    }
    if (padded) continue;
    // Where all count, the bits are those of the loss that knows no others.
    ExpectSameBits(Trained({"pairs", "1f1b", 2, 1, 2}, CrossEntropy, batch),
                   one);
    const LabLayout three = {"three", "1f1b", 3};
    ExpectSameBits(Trained(three, CrossEntropy, batch, false),
                   Trained(three, loss, batch, false));
  }
}

TEST(LossWeightsTest, ABatchOfPaddingTrainsNothingAndScoresNothing) {
  Batch batch = PaddedBatch();
  batch.targets.fill_(kIgnored);
  for (const LabLayout& layout : {Layouts()[0], Layouts()[3], Layouts()[8]}) {
    OnRanks(layout, CrossEntropyIgnoring(kIgnored), batch,
            [&](Strategy& strategy, const Batch& part) -> absl::Status {
              TANDEM_ASSIGN_OR_RETURN(const Score score,
                                      strategy.ComputeGradients(part));
              EXPECT_EQ(score.loss(), 0);
              EXPECT_EQ(score.count, 0);
              for (const auto& [name, gradient] : strategy.Gradients()) {
                EXPECT_TRUE(gradient.eq(0).all().item<bool>()) << name;
              }
              TANDEM_RETURN_IF_ERROR(strategy.Update(0.1));
              TANDEM_ASSIGN_OR_RETURN(const Score seen,
                                      strategy.Evaluate(part));
              EXPECT_EQ(seen.loss_sum, 0);
              return absl::OkStatus();
            });
  }
}

// A mean over none, as PyTorch gives it, from a loss of a user's own.
TEST(LossWeightsTest, ANanOfWeightZeroGoesNowhere) {
  const LossFunction naive(
      [](const at::Tensor& outputs, const at::Tensor& targets) {
        const at::Tensor loss =
            at::cross_entropy_loss(outputs.flatten(0, 1), targets.flatten(), {},
                                   at::Reduction::Mean, kIgnored);
        const int64_t count = targets.ne(kIgnored).sum().item<int64_t>();
        return LossResult{
            loss, {loss.item<double>() * static_cast<double>(count), 0, count}};
      },
      [](const at::Tensor& targets) {
        return targets.ne(kIgnored).sum().item<double>();
      });
  const Batch batch = PaddedBatch();
  const Gradients expected = Expected(batch);
  for (const LabLayout& layout : {Layouts()[2], Layouts()[11]}) {
    OnRanks(layout, naive, batch,
            [&](Strategy& strategy, const Batch& part) -> absl::Status {
              TANDEM_ASSIGN_OR_RETURN(const Score score,
                                      strategy.ComputeGradients(part));
              EXPECT_TRUE(std::isfinite(score.loss()));
              ExpectGradients(strategy, expected);
              return strategy.SkipUpdate();
            });
  }
}

LossResult WithoutWeight(const at::Tensor& outputs, const at::Tensor& targets) {
  return CrossEntropyIgnoring(kIgnored)(outputs, targets);
}

TEST(LossWeightsTest, ALossThatHidesItsWeightIsRefused) {
  const Batch batch = PaddedBatch();
  OnRanks(Layouts()[1], WithoutWeight, batch,
          [&](Strategy& strategy, const Batch& part) -> absl::Status {
            EXPECT_THAT(strategy.TrainStep(part, 0.1).status(),
                        Says("give the LossFunction a weight"));
            return absl::OkStatus();
          });
  ExpectOk(RunDeviceRanks(1, [&](Communicator& world) -> absl::Status {
    ReplicatedOptions options;
    options.accumulation_steps = 3;
    TANDEM_ASSIGN_OR_RETURN(const auto strategy,
                            MakeReplicated(MakeLayers(Specs(), kSeed),
                                           WithoutWeight, options, world));
    EXPECT_THAT(strategy->TrainStep(batch, 0.1).status(),
                Says("give the LossFunction a weight"));
    return absl::OkStatus();
  }));
}

// Ranks may have different numbers of samples, too.
void ExpectReplicated(const std::vector<int64_t>& sizes, int accumulation,
                      double z_loss) {
  const Batch batch = PaddedBatch();
  const Gradients expected = Expected(batch, z_loss);
  const double loss = ExpectedLoss(batch);
  ExpectOk(RunDeviceRanks(
      static_cast<int>(sizes.size()), [&](Communicator& world) -> absl::Status {
        ReplicatedOptions options;
        options.accumulation_steps = accumulation;
        LossFunction function = CrossEntropyIgnoring(kIgnored);
        if (z_loss > 0) function = WithZLoss(function, z_loss);
        TANDEM_ASSIGN_OR_RETURN(const auto strategy,
                                MakeReplicated(MakeLayers(Specs(), kSeed),
                                               function, options, world));
        int64_t first = 0;
        for (int i = 0; i < world.rank(); ++i) {
          first += sizes[static_cast<size_t>(i)];
        }
        const Batch part =
            SamplesOf(batch, first, sizes[static_cast<size_t>(world.rank())]);
        TANDEM_ASSIGN_OR_RETURN(const Score score,
                                strategy->ComputeGradients(part));
        EXPECT_NEAR(score.loss(), loss, 1e-5);
        ExpectGradients(*strategy, expected);
        return strategy->Update(0.1);
      }));
}

TEST(LossWeightsTest, ReplicatedGradientsAreTheUncutBatchs) {
  for (const int accumulation : {1, 4}) {
    for (const double z_loss : {0., 0.1}) {
      ExpectReplicated({24}, accumulation, z_loss);
      ExpectReplicated({12, 12}, accumulation, z_loss);
      ExpectReplicated({8, 8, 8}, accumulation, z_loss);
    }
    ExpectReplicated({4, 14, 6}, accumulation, 0);
  }
}

Batch TargetsOnly(int64_t size) {
  return {at::Tensor(), at::zeros({size}, at::kLong), size};
}

TEST(LossWeightsTest, AWeightMustBeANumberThatCanBe) {
  for (const double bad :
       {-1., std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto weights =
        LossWeights({CrossEntropy, [bad](const at::Tensor&) { return bad; }},
                    {TargetsOnly(3)});
    EXPECT_THAT(weights.status(), Says("must be finite and not negative"));
  }
  EXPECT_THAT(LossWeights({CrossEntropy, [](const at::Tensor&) { return 1; }},
                          {Batch{{}, {}, 2}})
                  .status(),
              Says("the batch has none"));
}

TEST(LossWeightsTest, PartsAddUpToOne) {
  EXPECT_THAT(PartsOfTotal({1, 3, 0}, 8), ElementsAre(0.125, 0.375, 0));
  EXPECT_THAT(PartsOfTotal({0, 0}, 0), ElementsAre(0, 0));
}

}  // namespace
}  // namespace tandem::loss_weights_test
