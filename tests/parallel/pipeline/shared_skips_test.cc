// Skip connections that several layers take: an encoder's output for every
// layer of the decoder.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "parallel/pipeline/model_parallel.h"
#include "parallel/schedule/schedules.h"
#include "tests/parallel/pipeline/rank_pipeline.h"

namespace tandem::shared_skips_test {
namespace {

constexpr int64_t kWidth = 6;
constexpr int64_t kClasses = 5;

LayerSpec Leaves(const std::string& name, const std::string& skip) {
  LayerLinks links;
  links.stash = {skip};
  return WithWeight(
      name, {kWidth, kWidth}, links,
      [skip](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
        const at::Tensor y = at::linear(x, weight).tanh();
        skips[skip] = y;
        return y;
      });
}

// Takes it out of the map, or leaves it there, which comes to the same.
LayerSpec Takes(const std::string& name, const std::string& skip,
                bool takes_out, int64_t width = kWidth) {
  LayerLinks links;
  links.pop = {skip};
  return WithWeight(
      name, {width, kWidth}, links,
      [=](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
        const at::Tensor past = skips.at(skip);
        if (takes_out) skips.erase(skip);
        return at::linear(x * past, weight).tanh();
      });
}

// "memory" is taken four times, over all cuts, and "short" twice; then its name
// is used again.
LayerSpecs Specs() {
  return {TanhLinear("fc", kWidth, kWidth),
          Leaves("encoder", "memory"),
          Leaves("left", "short"),
          Takes("one", "memory", true),
          Takes("short1", "short", false),
          Takes("two", "memory", false),
          Takes("short2", "short", true),
          Leaves("again", "short"),
          Takes("three", "memory", true),
          Takes("short3", "short", true),
          TanhLinear("fc2", kWidth, kWidth),
          Takes("four", "memory", true, kClasses)};
}

std::vector<StepsStep> Steps() {
  StepsStep train, evaluate;
  evaluate.trains = false;
  for (int i = 0; i < 4; ++i) {
    Batch batch;
    batch.size = 3;
    batch.inputs =
        at::randn({3, kWidth}, GeneratorFor(1, absl::StrCat("batch ", i)));
    batch.targets = at::arange(3).add(i).remainder(kClasses);
    train.microbatches.push_back(batch);
    evaluate.microbatches.push_back(std::move(batch));
  }
  return {train, evaluate, train};
}

class SharedSkipsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(4); }  // before any backward
};

// 1F1B goes through the microbatches in their order: then the sums of the
// takers' gradients have the bits of the model in one piece, too.
TEST_F(SharedSkipsTest, OverRanks) {
  const auto expected = StepsInOnePiece(Specs(), Steps());
  for (const std::string& name : ScheduleNames()) {
    for (int ranks : {2, 4}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", ranks, " ranks"));
      RankPipelineCase each;
      each.schedule = name;
      each.ranks = ranks;
      ExpectSame(StepsInStages(Specs(), Steps(), each), expected,
                 name == "1f1b");
    }
  }
}

TEST_F(SharedSkipsTest, OverDevices) {
  const auto expected = StepsInOnePiece(Specs(), Steps());
  for (const std::string& name : ScheduleNames()) {
    for (const auto& devices :
         {SimDevices(4), std::vector<c10::Device>(3, c10::kCPU)}) {
      SCOPED_TRACE(absl::StrCat(name, ", on ", devices[0].str()));
      RankPipelineCase each;
      each.schedule = name;
      each.ranks = 1;
      each.microbatches = 4;
      each.devices = devices;
      if (name == "interleaved_1f1b") each.devices.resize(2, devices[0]);
      ExpectSame(StepsInStages(Specs(), Steps(), each), expected,
                 name == "1f1b");
    }
  }
}

TEST_F(SharedSkipsTest, WithActivationCheckpointing) {
  RankPipelineCase each;
  each.ranks = 4;
  each.checkpointing = ActivationCheckpointing::kAlways;
  ExpectSame(StepsInStages(Specs(), Steps(), each),
             StepsInOnePiece(Specs(), Steps()), /*same_bits=*/true);
}

TEST_F(SharedSkipsTest, InPartsOnSeveralDevices) {
  const Batch batch = Steps()[0].microbatches[0];
  const LayerList whole = MakeLayers(Specs(), 3);
  const auto spread =
      SpreadOverDevices(MakeLayers(Specs(), 3), {4, 6, 10}, SimDevices(4));
  ASSERT_TRUE(spread.ok()) << spread.status();
  const at::Tensor y = Forward(whole, batch.inputs);
  const at::Tensor there = Forward(*spread, batch.inputs);
  EXPECT_TRUE(there.cpu().equal(y));
  CrossEntropy(y, batch.targets).loss.backward();
  CrossEntropy(there.cpu(), batch.targets).loss.backward();
  const NamedTensors expected = NamedParameters(whole);
  const NamedTensors found = NamedParameters(*spread);
  // Devices' threads of backward add in the order in which they get there.
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(found[i].second.grad().cpu().allclose(expected[i].second.grad(),
                                                      1e-5, 1e-6))
        << expected[i].first;
  }
}

}  // namespace
}  // namespace tandem::shared_skips_test
