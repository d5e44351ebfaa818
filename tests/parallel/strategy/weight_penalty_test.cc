// A weight that gets gradients from both parts of backward: that of the layer's
// product is left for later, that of a penalty on the weight comes at once.

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::weight_penalty_test {
namespace {

constexpr int64_t kWidth = 9;
constexpr int64_t kBatch = 24;
constexpr uint64_t kSeed = 2;

// A linear layer whose weight is to be small.
LayerSpec Penalised(const std::string& name) {
  LayerSpec spec = LinearLayer(name, kWidth, kWidth);
  spec.make = [make = spec.make](uint64_t seed) {
    Layer layer = make(seed);
    const at::Tensor weight = NamedParameters({layer}).front().second;
    layer.forward = [forward = layer.forward, weight](const at::Tensor& x) {
      AddAuxiliaryLoss("l2", weight.square().sum().mul(0.1));
      return forward(x);
    };
    return layer;
  };
  return spec;
}

LayerSpecs Specs() {
  LayerSpecs specs;
  for (int i = 0; i < 8; ++i) {
    specs.push_back(Penalised(absl::StrCat("fc", i)));
    specs.push_back(ReluLayer(absl::StrCat("relu", i)));
  }
  return specs;
}

Batch BatchOf(int step) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step));
  return {at::randn({kBatch, kWidth}, generator),
          at::randint(kWidth, {kBatch}, generator, at::kLong), kBatch};
}

absl::StatusOr<LabOutcome> Trained(const LabLayout& layout, int groups) {
  LabJob job;
  job.specs = Specs;
  job.loss = CrossEntropy;
  job.change = [groups](MeshStrategyOptions& options) {
    options.seed = kSeed;
    options.reproducible = true;
    options.gradient_groups = groups;
  };
  job.batch = BatchOf;
  return TrainInLab(layout, job);
}

TEST(WeightPenaltyTest, EveryLayoutHasTheBitsOfOneDevice) {
  for (const int groups : {0, 4}) {
    const auto expected = Trained({"one device"}, groups);
    for (const LabLayout& layout : std::vector<LabLayout>{
             {"zb_h1 on one", "zb_h1"},
             {"zb_h1 on two", "zb_h1", 1, 1, 2},
             {"zb_h1 on four", "zb_h1", 1, 1, 4},
             {"zb_v on two", "zb_v", 1, 1, 2, 2},
             {"zb_v on four", "zb_v", 1, 1, 4, 2},
             {"1f1b on four", "1f1b", 1, 1, 4},
             {"two replicas", "zb_h1", 2, 1, 4},
             {"four replicas", "zb_v", 4, 1, 2, 2},
         }) {
      SCOPED_TRACE(absl::StrCat(layout.name, ", ", groups, " groups"));
      ExpectSameBits(Trained(layout, groups), expected);
    }
  }
}

}  // namespace
}  // namespace tandem::weight_penalty_test
