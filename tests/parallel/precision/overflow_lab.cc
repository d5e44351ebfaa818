#include "tests/parallel/precision/overflow_lab.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/loss/loss_terms.h"
#include "core/precision/loss_scale.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {
namespace {

// A layer with a weight that a test can get at, and a loss of its own.
struct Gate : torch::nn::Module {
  Gate() : weight(register_parameter("weight", at::ones({8}))) {}
  at::Tensor forward(const at::Tensor& x) {
    AddAuxiliaryLoss("gates", weight.square().mean());
    return x * weight;
  }
  at::Tensor weight;
};

LayerSpec GateLayer(const std::string& name) {
  return ModuleLayer<Gate>(
      name, "Gate", [] { return std::make_shared<Gate>(); },
      [](const InitialParameter& parameter) { parameter.values.fill_(1); });
}

}  // namespace

LayerSpecs GatedSpecs() {
  return {LinearLayer("fc1", 6, 8), GateLayer("gate1"),
          ReluLayer("relu1"),       LinearLayer("fc2", 8, 8),
          GateLayer("gate2"),       LinearLayer("fc3", 8, 5)};
}

std::vector<LabLayout> OverflowLayouts() {
  std::vector<LabLayout> layouts = LabLayouts(
      "sequential 1x1x1, sequential 2x1x1, 1f1b 1x1x2, 1f1b 1x2x1, 1f1b 2x2x1",
      /*microbatches=*/4);
  layouts.back().microbatches = 8;
  return layouts;
}

LabChange Scaled(const LabChange& further, double init_scale) {
  return [=](MeshStrategyOptions& options) {
    options.grad_scaler.emplace();
    options.grad_scaler->init_scale = init_scale;
    options.grad_scaler->growth_interval = 3;
    if (further) further(options);
  };
}

LabChange SkippingAlone(const LabChange& further) {
  return [=](MeshStrategyOptions& options) {
    options.grad_scaler.emplace();
    options.grad_scaler->init_scale = 1;
    options.grad_scaler->constant = true;
    if (further) further(options);
  };
}

LayerSpecs WideSpecs() {
  const LayerSpecs gated = GatedSpecs();
  const auto middle = gated.begin() + 3;
  LayerSpecs specs(gated.begin(), middle);
  for (const LayerSpec& wide :
       {LinearLayer("wide1", 8, 512), LinearLayer("wide2", 512, 512),
        LinearLayer("wide3", 512, 8)}) {
    specs.push_back(wide);
  }
  specs.insert(specs.end(), middle, gated.end());
  return specs;
}

LabJob GatedJob(int steps, const LabChange& change) {
  LabJob job = ModelJob("mlp_small", kOverflowBatch, steps, change);
  job.specs = GatedSpecs;
  return job;
}

namespace {

// Spoils a rank's own gates' gradients in the step under way.
class Spoiler {
 public:
  void Begin(const LabRank& rank, const OverflowFault& fault) {
    for (const auto& [name, parameter] : rank.strategy->Parameters()) {
      const bool hit = (fault.rank < 0 || fault.rank == rank.rank) &&
                       name == absl::StrCat(fault.gate, ".weight");
      if (!hit) continue;
      at::Tensor weight = parameter;
      weight.register_hook([this, fault](const at::Tensor& gradient) {
        at::Tensor spoilt = gradient.clone();
        if (step_ == fault.step) spoilt[3] = fault.value;
        return spoilt;
      });
    }
  }
  void set_step(int step) { step_ = step; }

 private:
  int step_ = -1;
};

// What a rank has seen of its scale, step by step.
struct Seen {
  std::vector<double> scales;
  std::vector<bool> skipped;
};

TensorsByName HeldBy(const Strategy& strategy) {
  TensorsByName held = CopiesOf(strategy.Parameters());
  held.merge(CopiesOf(strategy.OptimizerState()));
  return held;
}

// A job with that fault; that ranks keep what they have in that step, and what
// they have seen, is noted by rank.
LabJob FaultyJob(LabJob job, const OverflowFault& fault,
                 const std::shared_ptr<std::vector<Seen>>& seen) {
  const auto spoilers = std::make_shared<std::vector<Spoiler>>(seen->size());
  const auto of = [](auto& all, const LabRank& rank) -> auto& {
    return (*all)[static_cast<size_t>(rank.rank)];
  };
  job.begin = [=](const LabRank& rank) {
    of(spoilers, rank).Begin(rank, fault);
    return absl::OkStatus();
  };
  job.step = [=](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    of(spoilers, rank).set_step(step);
    const TensorsByName before = HeldBy(*rank.strategy);
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->TrainStep(batch, kLabRate));
    if (step == fault.step) ExpectSameBits(HeldBy(*rank.strategy), before);
    const LossScale& scale = *rank.strategy->loss_scale();
    of(seen, rank).scales.push_back(scale.scale());
    of(seen, rank).skipped.push_back(scale.last_was_skipped());
    return score;
  };
  return job;
}

}  // namespace

void ExpectSkipped(const LabLayout& layout, const OverflowFault& fault,
                   const std::vector<double>& scales,
                   const std::function<LabJob(int steps)>& job) {
  const auto seen =
      std::make_shared<std::vector<Seen>>(static_cast<size_t>(layout.ranks()));
  const auto found = TrainInLab(layout, FaultyJob(job(4), fault, seen));
  for (const Seen& each : *seen) {
    EXPECT_EQ(each.scales, scales);
    std::vector<bool> skipped(4, false);
    skipped[static_cast<size_t>(fault.step)] = true;
    EXPECT_EQ(each.skipped, skipped);
  }
  LabJob without = job(3);
  without.batch = [&](int step) {
    return LabBatch("mlp_small", kOverflowBatch, kLabSeed,
                    step < fault.step ? step : step + 1);
  };
  const auto expected = TrainInLab(layout, without);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  ExpectSameBits(found->model, expected->model);
  ExpectSameBits(found->optimizer, expected->optimizer);
  ASSERT_EQ(found->held.size(), expected->held.size());
  for (size_t rank = 0; rank < found->held.size(); ++rank) {
    ExpectSameBits(found->held[rank], expected->held[rank]);
  }
}

}  // namespace tandem
