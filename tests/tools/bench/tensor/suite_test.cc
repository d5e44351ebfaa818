#include "tools/bench/tensor/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "core/testing/statuses.h"
#include "tests/tools/bench/sides.h"

namespace tandem::tensor_suite_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

auto Name(const char* name) { return Field(&Case::name, name); }

TEST(TensorCases, AreThoseThatRanksDivide) {
  EXPECT_THAT(TensorCases(2), ElementsAre(Name("gpt_tiny"), Name("gpt_baby"),
                                          Name("llama_baby")));
  EXPECT_THAT(TensorCases(4),
              ElementsAre(Name("gpt_tiny"), Name("llama_baby")));
  EXPECT_THAT(TensorCases(3), IsEmpty()) << "they have 256 tokens";
  BenchFlags flags;
  flags.ranks = 3;
  EXPECT_THAT(RunTensorSuite(flags, testing::TempDir()).status(),
              Says("--ranks=3"));
}

TEST(TensorCases, HaveOneReplicaAndABatchForEachRank) {
  for (const int ranks : {2, 4}) {
    for (const Case& each : TensorCases(ranks)) {
      EXPECT_EQ(each.layout.ranks(), ranks);
      EXPECT_EQ(each.layout.replicas, 1);
      EXPECT_EQ(each.workload.batch_size,
                WorkloadNamed(each.name)->batch_size * ranks);
      ASSERT_EQ(each.ours.size(), 1u);
      EXPECT_EQ(ToString(each.ours[0]), "1f1b 1 1 uniform tensor_sequence");
    }
  }
}

TEST(TensorPeers, AreOurOtherWayAndThoseOfPyTorch) {
  const std::vector<Peer> all = TensorPeers({});
  ASSERT_GT(all.size(), 2u);
  EXPECT_EQ(all[0].program, Program::kTandem);
  EXPECT_EQ(all[0].settings.front().recipe, kTensorRecipe);
  EXPECT_FALSE(all[0].may_fail);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i].program, Program::kPyTorch);
    EXPECT_EQ(all[i].settings.front().recipe, all[i].name);
    EXPECT_EQ(all[i].may_fail, absl::EndsWith(all[i].name, "_compile"));
  }
  const std::vector<Peer> wanted =
      TensorPeers({"tensor_sequence_loss_compile"});
  ASSERT_EQ(wanted.size(), 2u);
  EXPECT_FALSE(wanted[1].may_fail);
}

TEST(TensorPeers, OfOtherNamesAreRefused) {
  BenchFlags flags;
  flags.peers = {"eager"};
  EXPECT_THAT(RunTensorSuite(flags, testing::TempDir()).status(),
              Says("eager"));
}

SideResult Way(const Peer& peer, std::vector<double> step_ms, double mib) {
  SideResult side = MeasuredSide(peer.name, std::move(step_ms), mib);
  side.setting = peer.settings.front();
  return side;
}

CaseResult Measured(std::vector<double> whole_ms) {
  const std::vector<Peer> peers = TensorPeers({});
  CaseResult result;
  result.bench = TensorCases(2)[0];
  result.ours = MeasuredSide("tandem", {10, 20, 12}, 300);
  result.ours.setting = result.bench.ours[0];
  result.peers = {Way(peers[0], std::move(whole_ms), 320),
                  Way(peers[1], {30, 60, 36}, 700),
                  Way(peers[2], {20, 40, 24}, 800),
                  FailedSide(peers.back().name, "no compiler")};
  return result;
}

TEST(TensorTables, CompareTheFastestWaysAndShowAll) {
  const json report = TablesJson(TensorTables({Measured({30, 30, 30})}));
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& row = report.at("cases")[0];
  EXPECT_EQ(row.at("name"), "gpt_tiny");
  EXPECT_EQ(row.at("peer"), "parallelize_module");
  EXPECT_EQ(row.at("ours_ms"), 12);
  EXPECT_EQ(row.at("ratio"), 2);
  EXPECT_EQ(row.at("ours_mib"), 300);
  EXPECT_EQ(row.at("peer_mib"), 800);
  const json& ways = report.at("ways");
  ASSERT_EQ(ways.size(), 4u);
  EXPECT_EQ(ways[0].at("side"), "tandem");
  EXPECT_EQ(ways[0].at("way"), "tensor_sequence");
  EXPECT_EQ(ways[1].at("side"), "tandem");
  EXPECT_EQ(ways[1].at("way"), "tensor");
  EXPECT_EQ(ways[1].at("step_ms"), 30);
  EXPECT_EQ(ways[2].at("way"), "tensor");
  EXPECT_EQ(ways[3].at("side"), "parallelize_module");
  EXPECT_EQ(ways[3].at("way"), "tensor_loss");
  EXPECT_EQ(ways[3].at("least_ms"), 20);
  EXPECT_EQ(ways[3].at("greatest_ms"), 40);
}

TEST(TensorTables, CountOurBetterWay) {
  const json report = TablesJson(TensorTables({Measured({5, 10, 6})}));
  const json& row = report.at("cases")[0];
  EXPECT_EQ(row.at("ours_ms"), 6);
  EXPECT_EQ(row.at("ratio"), 4);
  EXPECT_EQ(row.at("ours_mib"), 320);
}

TEST(TensorTables, SayWhyAWayHasNoFigures) {
  CaseResult result = Measured({30, 30, 30});
  const json some = TablesJson(TensorTables({result}));
  ASSERT_EQ(some.at("failures").size(), 1u);
  EXPECT_EQ(some.at("failures")[0].at("reason"), "no compiler");
}

}  // namespace
}  // namespace tandem::tensor_suite_test
