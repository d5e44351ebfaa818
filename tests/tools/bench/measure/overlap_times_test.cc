#include "tools/bench/measure/overlap_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "core/instrument/trace.h"

namespace tandem::overlap_times_test {
namespace {

using nlohmann::json;

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

TEST(SpansOf, KeepsBucketsAndWhatDevicesDidInBackward) {
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
      SpansOf({event("device 0", "forward 0 of stage 0", 1),
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

TEST(OverlapOf, TakesTheRanksOfAReplicaTogether) {
  // Two replicas of two ranks, one step: rank 1's bucket goes from 10 to 14
  // while rank 0 computes until 13; on the other replica nothing is hidden.
  const std::vector<json> answers = {
      {{"steps", {Step({{13.0, 15.0}}, {{5.0, 13.0}})}}},
      {{"steps", {Step({{10.0, 14.0}}, {{4.0, 10.0}})}}},
      {{"steps", {Step(json::array(), {{0.0, 8.0}})}}},
      {{"steps", {Step({{10.0, 11.0}}, {{0.0, 5.0}})}}}};
  const OverlapTimes times = OverlapOf(answers, /*pipe=*/2);
  EXPECT_NEAR(times.all_reduce_ms, (5 + 1) / 2.0, 1e-12);
  EXPECT_NEAR(times.hidden_ms, (3 + 0) / 2.0, 1e-12);
  EXPECT_NEAR(times.share(), 0.5, 1e-12);
  // Each rank a replica of its own: rank 1's is hidden by nobody.
  EXPECT_NEAR(OverlapOf(answers, 1).hidden_ms, 0, 1e-12);
}

TEST(OverlapOf, IsAMeanOverSteps) {
  const std::vector<json> answers = {
      {{"steps",
        {Step({{0.0, 4.0}}, {{0.0, 4.0}}), Step({{10.0, 12.0}}, {})}}}};
  const OverlapTimes times = OverlapOf(answers, 1);
  EXPECT_NEAR(times.all_reduce_ms, 3, 1e-12);
  EXPECT_NEAR(times.hidden_ms, 2, 1e-12);
  EXPECT_EQ(OverlapTimes().share(), 0);
}

}  // namespace
}  // namespace tandem::overlap_times_test
