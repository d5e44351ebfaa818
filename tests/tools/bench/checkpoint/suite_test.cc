// With a peer that keeps numbers in a pickle of its own, in Python's standard
// library.

#include "tools/bench/checkpoint/suite.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/bench/sides.h"

namespace tandem::checkpoint_suite_test {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::SizeIs;

constexpr char kPeer[] = R"(
import array, hashlib, json, sys
wrong = "--wrong" in sys.argv
paths = dict(f[2:].split("=", 1) for f in sys.argv[1:] if "=" in f)
data = b""
for line in open(paths["commands"]):
    command, *arguments = json.loads(line)
    answer = {"ms": 10.0}
    if command == "make":
        tensors, numbers, folder = arguments
        data = b"".join(
            array.array("f", range(i, i + numbers)).tobytes()
            for i in range(tensors))
    if command == "digest":
        answer = {"sha256": hashlib.sha256(data + b"x" * wrong).hexdigest()}
    print(json.dumps(answer), flush=True)
)";

CheckpointBench Bench(const std::string& name) {
  CheckpointBench bench;
  bench.folder = testing::TempDir() + "/checkpoint_" + name;
  bench.peer = PythonPeer(bench.folder, kPeer);
  bench.states = {{"few", 2, 1000}, {"many", 7, 5}};
  bench.rounds = 3;
  return bench;
}

TEST(RunTest, EachStateIsSavedLoadedAndCopied) {
  const auto results = CompareCheckpoints(Bench("same"));
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_THAT(*results, SizeIs(6));
  EXPECT_EQ((*results)[0].state, "few");
  EXPECT_EQ((*results)[0].operation, "save");
  EXPECT_EQ((*results)[1].operation, "load");
  EXPECT_EQ((*results)[2].operation, "stall");
  EXPECT_EQ((*results)[0].bytes, 8000);
  EXPECT_EQ((*results)[5].state, "many");
  EXPECT_EQ((*results)[5].bytes, 140);
  for (const CheckpointResult& each : *results) {
    EXPECT_THAT(each.ours_ms, SizeIs(3));
    EXPECT_THAT(each.ours_ms, Each(Gt(0)));
    EXPECT_THAT(each.peer_ms, SizeIs(3));
  }
}

TEST(RunTest, OtherValuesAreNotTimed) {
  CheckpointBench bench = Bench("other");
  bench.peer.emplace_back("--wrong");
  const absl::Status status = CompareCheckpoints(bench).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               "few: what was loaded is not what was saved"));
}

// 1 MB in 125 ms and in 400 ms.
CheckpointResult Result() {
  CheckpointResult result;
  result.state = "many";
  result.operation = "save";
  result.bytes = 1000000;
  result.ours_ms = {100, 200, 125};
  result.peer_ms = {500, 400, 250};
  return result;
}

TEST(CheckpointTablesTest, HaveMediansMegabytesASecondAndTheirRatio) {
  const nlohmann::json figures = TablesJson(CheckpointTables({Result()}));
  EXPECT_EQ(figures["cases"][0], (nlohmann::json{{"state", "many"},
                                                 {"operation", "save"},
                                                 {"bytes", 1000000},
                                                 {"ours_ms", 125.0},
                                                 {"ours_mb_per_s", 8.0},
                                                 {"peer_ms", 400.0},
                                                 {"peer_mb_per_s", 2.5},
                                                 {"ratio", 3.2},
                                                 {"ratio_min", 2.0},
                                                 {"ratio_max", 5.0}}));
}

TEST(RunCheckpointSuiteTest, RefusesAStateThatIsTooSmall) {
  BenchFlags flags;
  flags.megabytes = 15;
  EXPECT_EQ(RunCheckpointSuite(flags, "").status(),
            absl::InvalidArgumentError("--megabytes=15: expected at least 16"));
  flags.rounds = 0;
  EXPECT_EQ(RunCheckpointSuite(flags, "").status(),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
}

}  // namespace
}  // namespace tandem::checkpoint_suite_test
