// Layers that normalise over replicas, in every kind of layout: as one process
// that puts the replicas' microbatches together.

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/context/compute_context.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::sync_batch_norm_strategy_test {
namespace {

constexpr int64_t kMicrobatchSize = 2;
constexpr uint64_t kSeed = 3;
constexpr double kRate = 0.1;

LayerSpecs Specs() {
  Conv2dShape first, second;
  first.in_channels = 2;
  first.out_channels = second.in_channels = second.out_channels = 3;
  first.kernel_size = second.kernel_size = 3;
  return {Conv2dLayer("conv1", first),  BatchNorm2dLayer("norm1", 3),
          ReluLayer("relu1"),           Conv2dLayer("conv2", second),
          BatchNorm2dLayer("norm2", 3), BatchNorm2dLayer("norm3", 3),
          GlobalAvgPool2dLayer("pool"), FlattenLayer("flatten"),
          LinearLayer("head", 3, 4)};
}

// How many samples each replica has in each step.
using Deal = std::vector<std::vector<int64_t>>;

// Another distribution on each replica.
Batch Share(const Deal& deal, int step, int replica) {
  const int64_t size =
      deal[static_cast<size_t>(step)][static_cast<size_t>(replica)];
  if (size == 0) return Batch();
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step, " of ", replica));
  return {at::randn({size, 2, 6, 6}, generator) * (replica + 1) + replica,
          at::randint(4, {size}, generator, at::kLong), size};
}

// One process: microbatch m is all replicas' microbatch m.
TensorsByName Alone(const Deal& deal, bool defers,
                    const LayerSpecs& specs = Specs()) {
  const LayerList layers = MakeLayers(specs, kSeed);
  for (int step = 0; step < static_cast<int>(deal.size()); ++step) {
    const auto& sizes = deal[static_cast<size_t>(step)];
    int64_t total = 0, most = 0;
    for (const int64_t size : sizes) {
      total += size;
      most = std::max(most, (size + kMicrobatchSize - 1) / kMicrobatchSize);
    }
    for (int m = 0; m < most; ++m) {
      std::vector<at::Tensor> inputs, targets;
      for (int r = 0; r < static_cast<int>(sizes.size()); ++r) {
        const int64_t first = m * kMicrobatchSize;
        const int64_t size =
            std::min(kMicrobatchSize, sizes[static_cast<size_t>(r)] - first);
        if (size <= 0) continue;
        const Batch batch = Share(deal, step, r);
        inputs.push_back(batch.inputs.narrow(0, first, size));
        targets.push_back(batch.targets.narrow(0, first, size));
      }
      const MicrobatchScope scope({m, static_cast<int>(most), false, defers});
      at::Tensor x = at::cat(inputs);
      for (const Layer& layer : layers) x = layer.forward(x);
      const at::Tensor loss = at::cross_entropy_loss(x, at::cat(targets));
      (loss * (static_cast<double>(x.size(0)) / static_cast<double>(total)))
          .backward();
    }
    Descend(layers, kRate);
  }
  NamedTensors all = NamedParameters(layers);
  for (const auto& each : NamedBuffers(layers)) all.push_back(each);
  return CopiesOf(all);
}

absl::StatusOr<LabOutcome> Trained(const LabLayout& layout, const Deal& deal,
                                   const LabChange& change = nullptr,
                                   const LayerSpecs& specs = Specs()) {
  LabJob job;
  job.specs = [&] { return specs; };
  job.loss = CrossEntropy;
  job.change = [&](MeshStrategyOptions& options) {
    options.microbatch_size = kMicrobatchSize;
    options.uneven_batches = true;
    options.sync_batch_norm = true;
    options.seed = kSeed;
    options.optimizer = SgdOptions{};
    options.ddp.bucket_cap_mb = 1.0 / 4096;
    if (change) change(options);
  };
  job.share = [&](int step, int replica) { return Share(deal, step, replica); };
  job.steps = static_cast<int>(deal.size());
  job.rate = kRate;
  return TrainInLab(layout, job);
}

std::vector<LabLayout> Layouts() {
  return LabLayouts(
      "1f1b 2x1x1, sequential 2x1x1, gpipe 3x1x1, zb_h1 2x1x2, 1f1b 2x2x1, "
      "zb_h1 3x2x1, zb_v 2x1x2x2, interleaved_1f1b 2x2x1x2, "
      "1f1b 2x1x2 always, gpipe 2x2x1 except_last");
}

// Even steps; then replicas with fewer microbatches, and without any.
Deal DealFor(int replicas) {
  Deal deal = {std::vector<int64_t>(static_cast<size_t>(replicas), 8)};
  deal.push_back(deal.front());
  deal.back().front() = 3;
  deal.push_back(deal.front());
  deal.back().back() = 0;
  deal.emplace_back(static_cast<size_t>(replicas), 0);
  deal.back().back() = 5;
  deal.push_back(deal.front());
  return deal;
}

void ExpectNear(const absl::StatusOr<LabOutcome>& found,
                const TensorsByName& expected) {
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->model.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_TRUE(at::allclose(found->model.at(name).to(at::kDouble),
                             tensor.to(at::kDouble), 2e-4, 2e-5))
        << name << ": " << found->model.at(name) << " instead of " << tensor;
  }
}

// Replicas hold the same bits, running statistics included.
void ExpectAlike(const LabOutcome& outcome, const LabLayout& layout) {
  const size_t pipe = static_cast<size_t>(layout.pipe);
  for (size_t rank = pipe; rank < outcome.held.size(); ++rank) {
    ExpectSameBits(outcome.held[rank], outcome.held[rank % pipe]);
  }
}

TEST(SyncBatchNormStrategyTest, IsOneProcessWithTheMicrobatchesTogether) {
  for (const bool defers : {false, true}) {
    for (const bool broadcasts : {true, false}) {
      for (const LabLayout& layout : Layouts()) {
        SCOPED_TRACE(absl::StrCat(layout.name, defers, broadcasts));
        const Deal deal = DealFor(layout.replicas);
        const auto found = Trained(layout, deal, [&](auto& options) {
          options.pipeline.defers_statistics = defers;
          options.ddp.broadcast_buffers = broadcasts;
        });
        ExpectNear(found, Alone(deal, defers));
        if (found.ok()) ExpectAlike(*found, layout);
      }
    }
  }
}

// Behind the last normalisation that backward comes to there is one weight
// alone, of LibTorch's, whose gradient waits; the second stage puts it off past
// other microbatches.
TEST(SyncBatchNormStrategyTest, NoReplicaPutsANormalisationsGradientOff) {
  const LayerSpecs specs = {
      ReluLayer("relu"),
      ModuleLayer<torch::nn::Conv2dImpl>(
          "conv", "Conv2d",
          [] {
            return std::make_shared<torch::nn::Conv2dImpl>(
                torch::nn::Conv2dOptions(2, 3, 3).bias(false));
          }),
      ModuleLayer<SyncableBatchNorm2dImpl>(
          "norm", "BatchNorm2d",
          [] {
            return std::make_shared<SyncableBatchNorm2dImpl>(
                torch::nn::BatchNorm2dOptions(3).affine(false));
          }),
      GlobalAvgPool2dLayer("pool"),
      FlattenLayer("flatten"),
      LinearLayer("head", 3, 4)};
  const Deal deal = DealFor(2);
  const auto found = Trained(
      {"pairs", "zb_h1", 2, 1, 2}, deal,
      [](auto& options) { options.cuts = {1}; }, specs);
  ExpectNear(found, Alone(deal, false, specs));
}

// Backward comes to groups of layers in the other order.
TEST(SyncBatchNormStrategyTest, GroupsOfLayersAreComputedAgainWithTheSameBits) {
  for (const LabLayout& layout : Layouts()) {
    const Deal deal = DealFor(layout.replicas);
    const auto plain = Trained(layout, deal);
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const int every : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(layout.name, " every ", every));
      const auto found = Trained(layout, deal, [&](auto& options) {
        options.pipeline.selective.every = every;
      });
      ASSERT_TRUE(found.ok()) << found.status();
      ExpectSameBits(found->model, plain->model);
      ExpectAlike(*found, layout);
    }
  }
}

// One that waits for other replicas when a bucket starts.
TEST(SyncBatchNormStrategyTest, AHookThatBlocksWaitsForTheMissingMicrobatches) {
  const LabLayout layout = {"pairs", "1f1b", 2, 1, 2};
  const auto found = Trained(layout, DealFor(2), [](auto& options) {
    options.make_hook = []() -> absl::StatusOr<CommunicationHook> {
      return CommunicationHook(
          [](const GradBucket& bucket,
             Communicator& group) -> absl::StatusOr<FinishReduction> {
            const at::Tensor buffer = bucket.buffer;
            buffer.div_(group.size());
            TANDEM_RETURN_IF_ERROR(group.AllReduceSum(buffer));
            return FinishReduction([] { return absl::OkStatus(); });
          });
    };
  });
  ExpectNear(found, Alone(DealFor(2), false));
}

// Replicas that share what they train gather parameters and send gradients
// between normalisations; one without samples does all three with the rest.
TEST(SyncBatchNormStrategyTest, ReplicasThatShareNormaliseTogether) {
  struct Shares {
    std::string layouts;
    int data_shard;
  };
  int cells = 0;
  for (const Shares& shares : std::vector<Shares>{
           {"1f1b 2x1x1, gpipe 3x1x1, zb_h1 2x1x2, 1f1b 2x2x1, zb_v 2x1x2x2, "
            "interleaved_1f1b 2x2x1x2, 1f1b 2x1x2 always",
            0},
           {"1f1b 4x1x1, zb_h1 4x2x1", 2}}) {
    for (LabLayout layout : LabLayouts(shares.layouts)) {
      layout.microbatches = 4 * layout.replicas;
      const Deal deal = DealFor(layout.replicas);
      const TensorsByName alone = Alone(deal, false);
      for (const Sharding sharding :
           {Sharding::kOptimizer, Sharding::kGradients,
            Sharding::kParameters}) {
        for (const bool reshards : {true, false}) {
          if (!reshards && sharding != Sharding::kParameters) continue;
          SCOPED_TRACE(absl::StrCat(layout.name, " in ", shares.data_shard,
                                    " sharding ", static_cast<int>(sharding),
                                    reshards));
          ExpectNear(Trained(layout, deal,
                             [&](auto& options) {
                               options.shard = sharding;
                               options.data_shard = shares.data_shard;
                               options.shard_min_num_params = 1;
                               options.reshard_after_forward = reshards;
                             }),
                     alone);
          ++cells;
        }
      }
    }
  }
  std::cout << cells << " cells of replicas that share\n";
  EXPECT_EQ(cells, 36);
}

TEST(SyncBatchNormStrategyTest, NamesWhatItExcludes) {
  ExpectRefusals(
      [](const LabChange& change) {
        return Trained({"two", "1f1b", 2, 1, 1}, {{8, 8}}, change).status();
      },
      {{[](auto& o) { o.reproducible = true; },
        "reproducible excludes sync_batch_norm"},
       {[](auto& o) { o.averaging = ParameterAveragingOptions(); },
        "sync_batch_norm has replicas normalise together"}});
}

TEST(SyncBatchNormStrategyTest, AModelWithoutBatchNormIsRefused) {
  LabJob job;
  job.specs = [] { return LayerSpecs{LinearLayer("head", 3, 4)}; };
  job.loss = CrossEntropy;
  job.change = [](auto& options) { options.sync_batch_norm = true; };
  const absl::Status status =
      OnLabRanks({"two", "1f1b", 2, 1, 1}, job,
                 [](const LabRank&) { return absl::OkStatus(); });
  EXPECT_THAT(status, Says("no layer has one: leave it out"));
}

// A layer in two places meets others' in another order.
TEST(SyncBatchNormStrategyTest, ALayerThatRunsTwiceIsRefused) {
  LabJob job;
  job.specs = [] {
    LayerSpecs specs = {BatchNorm2dLayer("norm", 2),
                        GlobalAvgPool2dLayer("pool"), FlattenLayer("flatten"),
                        LinearLayer("head", 2, 4)};
    specs[0].make = [make = specs[0].make](uint64_t seed) {
      Layer layer = make(seed);
      layer.forward = [once = layer.forward](const at::Tensor& x) {
        return once(once(x));
      };
      return layer;
    };
    return specs;
  };
  job.loss = CrossEntropy;
  job.change = [](auto& options) {
    options.sync_batch_norm = true;
    options.microbatch_size = kMicrobatchSize;
  };
  job.share = [](int step, int replica) {
    return Share({{8, 8}}, step, replica);
  };
  job.steps = 1;
  const auto trained = TrainInLab({"two", "1f1b", 2, 1, 1, 1, 8}, job);
  EXPECT_THAT(trained.status(), Says("must each run once a microbatch"));
}

}  // namespace
}  // namespace tandem::sync_batch_norm_strategy_test
