// What benchmarks measure with: cores, medians, overlaps, and products' times.

#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/instrument/trace.h"
#include "models/functions/matrix_product.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/measure/overlap_times.h"
#include "tools/bench/measure/step_floor.h"

namespace tandem::measure_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

int Available() {
  return static_cast<int>(std::thread::hardware_concurrency());
}

TEST(Cores, AreThoseThatTheThreadMayUse) {
  EXPECT_GE(CoreNumber(0, 1), 0);
  EXPECT_THAT(CoreNumbers(0, 1, 1), SizeIs(1));
  EXPECT_EQ(CoreNumbers(0, 1, 1).front(), CoreNumber(0, 1));
  // None is bound where there are too few for all.
  EXPECT_THAT(CoreNumbers(1, 2, Available() + 1), ElementsAre(-1, -1));
}

TEST(OnEachCore, RunsThereAndGivesTheFirstError) {
  const int core = CoreNumber(0, 1);
  std::atomic<int> runs{0};
  EXPECT_TRUE(OnEachCore({core, -1}, [&](size_t index) {
                if (index == 0) {
                  EXPECT_EQ(sched_getcpu(), core);
                }
                ++runs;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(runs, 2);
  const absl::Status error = absl::InternalError("no luck");
  EXPECT_EQ(OnEachCore({-1, -1}, [&](size_t) { return error; }), error);
}

TEST(Median, IsTheMiddleOne) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 100, 2}), 3);
}

TEST(Median, OfNothingIsZeroWhereThatIsAsked) {
  EXPECT_EQ(MedianOrZero({}), 0);
  EXPECT_EQ(MedianOrZero({1, 2}), 1.5);
}

TEST(PairedRatio, ComparesMediansAndPairs) {
  const Ratio ratio = PairedRatio({10, 30, 20}, {10, 10, 5});
  EXPECT_EQ(ratio.ratio, 2);  // 20 / 10
  EXPECT_EQ(ratio.min, 1);
  EXPECT_EQ(ratio.max, 4);
}

TEST(PairedRatio, IsGreaterThanOneWhereOursIsFaster) {
  EXPECT_GT(PairedRatio({2}, {1}).ratio, 1);
}

TEST(Covered, CountsWhatOverlapsOnce) {
  EXPECT_EQ(Covered({}), 0);
  EXPECT_EQ(Covered({{2, 5}}), 3);
  EXPECT_EQ(Covered({{4, 6}, {0, 1}, {5, 9}, {4, 5}}), 6);
  EXPECT_EQ(Covered({{0, 10}, {1, 2}, {10, 11}}), 11);
}

TEST(CoveredByBoth, IsTheIntersection) {
  EXPECT_EQ(CoveredByBoth({{0, 4}, {6, 8}}, {{3, 7}}), 2);
  EXPECT_EQ(CoveredByBoth({{0, 4}, {2, 5}}, {{1, 3}, {2, 6}}), 4);
  EXPECT_EQ(CoveredByBoth({{0, 1}}, {{1, 2}}), 0);
  EXPECT_EQ(CoveredByBoth({}, {{1, 2}}), 0);
}

TEST(TraceSpans, KeepsBucketsAndWhatDevicesDidInBackward) {
  const TraceEvent::Clock::time_point zero;
  const auto event = [&](const char* track, const char* name, int begin) {
    return TraceEvent{track,
                      name,
                      "",
                      zero + std::chrono::milliseconds(begin),
                      zero + std::chrono::microseconds(1000 * begin + 500),
                      {}};
  };
  const json spans =
      TraceSpans({event("device 0", "forward 0 of stage 0", 1),
                  event("device 0", "backward 0 of stage 0", 2),
                  event("compute", "backward", 3),
                  event("communication", "all-reduce of bucket 1", 4),
                  event("compute", "optimizer", 5)});
  EXPECT_EQ(spans.at("backwards"), json::parse("[[2.0, 2.5]]"));
  EXPECT_EQ(spans.at("all_reduces"), json::parse("[[4.0, 4.5]]"));
}

json Step(const json& all_reduces, const json& backwards) {
  return {{"all_reduces", all_reduces}, {"backwards", backwards}};
}

TEST(AllReduceOverlap, TakesTheRanksOfAReplicaTogether) {
  // Two replicas of two ranks, one step: rank 1's bucket goes from 10 to 14
  // while rank 0 computes until 13; on the other replica nothing is hidden.
  const std::vector<json> answers = {
      {{"steps", {Step({{13.0, 15.0}}, {{5.0, 13.0}})}}},
      {{"steps", {Step({{10.0, 14.0}}, {{4.0, 10.0}})}}},
      {{"steps", {Step(json::array(), {{0.0, 8.0}})}}},
      {{"steps", {Step({{10.0, 11.0}}, {{0.0, 5.0}})}}}};
  const OverlapTimes times = AllReduceOverlap(answers, /*pipe=*/2);
  EXPECT_NEAR(times.all_reduce_ms, (5 + 1) / 2.0, 1e-12);
  EXPECT_NEAR(times.hidden_ms, (3 + 0) / 2.0, 1e-12);
  EXPECT_NEAR(times.share(), 0.5, 1e-12);
  // Each rank a replica of its own: rank 1's is hidden by nobody.
  EXPECT_NEAR(AllReduceOverlap(answers, 1).hidden_ms, 0, 1e-12);
}

TEST(AllReduceOverlap, IsAMeanOverSteps) {
  const std::vector<json> answers = {
      {{"steps",
        {Step({{0.0, 4.0}}, {{0.0, 4.0}}), Step({{10.0, 12.0}}, {})}}}};
  const OverlapTimes times = AllReduceOverlap(answers, 1);
  EXPECT_NEAR(times.all_reduce_ms, 3, 1e-12);
  EXPECT_NEAR(times.hidden_ms, 2, 1e-12);
  EXPECT_EQ(OverlapTimes().share(), 0);
}

class StepFloorTest : public testing::Test {
 protected:
  void SetUp() override {
#ifndef NDEBUG
    GTEST_SKIP() << "LibTorch's records have another layout in debug builds";
#endif
  }
};

json FloorOf(absl::FunctionRef<void()> step) {
  const auto floor = StepFloor([&] {
    step();
    return absl::OkStatus();
  });
  EXPECT_TRUE(floor.ok()) << floor.status();
  return *floor;
}

TEST_F(StepFloorTest, CountsCallsOfEachShape) {
  const at::Tensor a = at::ones({3, 5});
  const json floor = FloorOf([&] {
    at::mm(a, at::ones({5, 2}));
    at::mm(a, at::ones({5, 2}));
    at::mm(a, at::ones({7, 5}).t());
    at::relu(a);
  });
  const json& products = floor.at("products");
  ASSERT_EQ(products.size(), 2u);
  double sum = 0;
  double calls = 0;
  for (const json& each : products) {
    EXPECT_EQ(each.at("name"), "aten::mm");
    EXPECT_THAT(std::string(each.at("operands")),
                testing::AnyOf(HasSubstr("Float[5, 2]/[2, 1]"),
                               HasSubstr("Float[5, 7]/[1, 5]")));
    EXPECT_GT(each.at("ms"), 0);
    sum += each.at("ms").get<double>() * each.at("calls").get<double>();
    calls += each.at("calls").get<double>();
  }
  EXPECT_EQ(calls, 3);
  EXPECT_DOUBLE_EQ(floor.at("ms"), sum);
}

// conv2d calls a convolution, that another: one product.
TEST_F(StepFloorTest, TakesTheInnermostAlone) {
  const at::Tensor x = at::ones({1, 2, 8, 8});
  const at::Tensor weight = at::ones({4, 2, 3, 3}).requires_grad_();
  const json floor = FloorOf([&] { at::conv2d(x, weight).sum().backward(); });
  ASSERT_EQ(floor.at("products").size(), 2u);  // and its backward
  for (const json& each : floor.at("products")) {
    EXPECT_THAT(std::string(each.at("name")), HasSubstr("onvolution"));
    EXPECT_EQ(each.at("calls"), 1);
  }
}

// Put in memory that is there, large enough for either library, and a bias that
// is one number wide.
TEST_F(StepFloorTest, CallsWhatIsWrittenAndWhatIsExpanded) {
  const at::Tensor a = at::ones({256, 256});
  const at::Tensor product = at::ones({256, 256});
  const json floor = FloorOf([&] {
    PutMatrixProduct(product, a, a);
    at::linear(a, a, at::ones({1}).expand({256}));
  });
  EXPECT_EQ(product[0][0].item<float>(), 256);
  ASSERT_EQ(floor.at("products").size(), 2u);
  EXPECT_GT(floor.at("ms"), 0);
}

json PassNamed(const std::string& name, const json& floor) {
  for (const json& each : floor.at("passes")) {
    if (each.at("name") == name) return each;
  }
  return json();
}

// Tensors of 1 MiB: one is read and one written; one is written; one is both;
// one is read; nothing.
TEST_F(StepFloorTest, AddsUpWhatOperatorsMove) {
  const at::Tensor a = at::ones({512, 512});
  const at::Tensor b = at::ones({512, 512});
  const at::Tensor small = at::ones({8, 8});
  const json floor = FloorOf([&] {
    at::relu(a);
    b.zero_();
    b.mul_(2);
    b.copy_(a);
    a.view({-1, 8}).t().slice(0, 0, 4);
    at::relu(small);
    a.sum();
  });
  const int64_t mib = 1 << 20;
  SCOPED_TRACE(floor.at("passes").dump());
  EXPECT_EQ(PassNamed("aten::clamp_min", floor).at("bytes"), 2 * mib);
  EXPECT_EQ(PassNamed("aten::fill_", floor).at("bytes"), mib);
  EXPECT_EQ(PassNamed("aten::mul", floor).at("bytes"), 2 * mib);
  EXPECT_EQ(PassNamed("aten::copy_", floor).at("bytes"), 2 * mib);
  EXPECT_EQ(PassNamed("aten::sum", floor).at("bytes"), mib);
  EXPECT_EQ(floor.at("bytes"), 8 * mib);
  EXPECT_EQ(floor.at("passes").size(), 5u);
}

// A product's own operands are its own affair.
TEST_F(StepFloorTest, WhatProductsMoveIsTheirs) {
  const at::Tensor a = at::ones({512, 512});
  const json floor = FloorOf([&] { at::mm(a, a); });
  EXPECT_EQ(floor.at("bytes"), 0);
}

TEST(MemoryBandwidthTest, IsWithinWhatMachinesHave) {
  const double bandwidth = MemoryBandwidth();
  EXPECT_GT(bandwidth, 1e8);
  EXPECT_LT(bandwidth, 1e13);
}

TEST_F(StepFloorTest, FailsAsTheStepDoes) {
  EXPECT_EQ(StepFloor([] { return absl::AbortedError("lost"); }).status(),
            absl::AbortedError("lost"));
}

TEST_F(StepFloorTest, OfAStepWithoutProductsIsNothing) {
  const json floor = FloorOf([] { at::relu(at::ones({2})); });
  EXPECT_EQ(floor.at("ms"), 0);
  EXPECT_TRUE(floor.at("products").empty());
}

TEST(IsProduct, KnowsOperators) {
  for (const char* op :
       {"aten::addmm", "aten::bmm", "mkldnn::_linear_pointwise",
        "aten::mkldnn_convolution", "tandem::causal_attention",
        "tandem::put_matrix_product"}) {
    EXPECT_TRUE(IsProduct(op)) << op;
  }
  for (const char* op : {"aten::sum", "aten::_fused_sgd_", "aten::copy_"}) {
    EXPECT_FALSE(IsProduct(op)) << op;
  }
}

}  // namespace
}  // namespace tandem::measure_test
