// With a peer that tells the figures of tandem's job before it, in Python's
// standard library, on a few images.

#include "tools/bench/job/suite.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/files.h"
#include "tests/tools/bench/sides.h"
#include "tools/bench/job/run.h"

namespace tandem::job_suite_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

// --loss_times=X and --test_loss_times=X: its own losses are X times as large.
constexpr char kPeer[] = R"(
import json, os, sys, time
flags = dict(f[2:].split("=", 1) for f in sys.argv[1:] if "=" in f)
folder = os.path.dirname(flags["inputs"])
with open(os.path.join(folder, "flags"), "a") as file:
    print(json.dumps(flags), file=file)
began = time.time()
events = [json.loads(l) for l in open(os.path.join(folder, "metrics.jsonl"))]
steps = [event for event in events if event["event"] == "step"]
test = [event for event in events if event["event"] == "eval"][-1]
loss_times = float(flags.get("loss_times", 1))
trained = time.time()
open(flags["checkpoint"], "x").write("weights")
print("to be ignored")
print(json.dumps({
    "began": began, "trained": trained, "saved": time.time(),
    "evaluated": time.time(), "steps": steps[-1]["step"], "step_s": 0.5,
    "losses": [event["loss"] * loss_times for event in steps],
    "test_loss": test["loss"] * float(flags.get("test_loss_times", 1)),
    "test_accuracy": test["accuracy"],
}))
)";

// A data set of 256 images to train on and 40 to test on; its folder.
std::string FewImages() {
  std::filesystem::create_directories(testing::TempDir() + "/images");
  for (const auto& [prefix, count] :
       {std::pair("train", 256), std::pair("t10k", 40)}) {
    std::string pixels;
    std::string labels;
    for (int i = 0; i < count; ++i) {
      labels += static_cast<char>(i % 10);
      pixels += std::string(784, static_cast<char>(i % 10 * 25));
    }
    const auto size = static_cast<uint32_t>(count);
    const std::string stem = std::string("images/") + prefix;
    WriteTestFile(stem + "-images-idx3-ubyte",
                  IdxBytes({size, 28, 28}, pixels));
    WriteTestFile(stem + "-labels-idx1-ubyte", IdxBytes({size}, labels));
  }
  return testing::TempDir() + "/images";
}

JobBench Bench() {
  JobBench bench;
  bench.cases = {JobCases().front()};
  bench.setup.options.folder = TestFolder();
  bench.setup.options.rounds = 1;
  bench.setup.options.steps = 3;
  bench.setup.peer = PythonPeer(bench.setup.options.folder, kPeer);
  bench.setup.data_dir = FewImages();
  return bench;
}

void ExpectParts(const JobRun& run) {
  for (const double each : {run.start_s, run.training_s, run.floor_s}) {
    EXPECT_GT(each, 0);
  }
  for (const double each : {run.checkpoint_s, run.evaluation_s, run.end_s}) {
    EXPECT_GE(each, 0);
  }
  EXPECT_NEAR(run.start_s + run.training_s + run.checkpoint_s +
                  run.evaluation_s + run.end_s,
              run.whole_s, 1e-3);
}

TEST(JobCasesTest, AreTheDefaultJobOnOneRankAndOnTwoAndResNet) {
  const std::vector<Case> all = JobCases();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[0].name, "cnn/1x1");
  EXPECT_EQ(all[1].name, "cnn/2x1");
  EXPECT_EQ(all[1].layout.ranks(), 2);
  EXPECT_EQ(all[1].workload.batch_size, all[0].workload.batch_size);
  EXPECT_EQ(all[1].workload.steps, 0);
  EXPECT_EQ(all[2].name, "resnet18/1x1");
  EXPECT_THAT(all[2].workload.input_shape, ElementsAre(1, 28, 28));
}

TEST(CompareJobsTest, JobsAreComparedAndThenTimed) {
  JobBench bench = Bench();
  bench.cases.push_back(JobCases()[1]);
  CaptureStderr();
  const auto results = CompareJobs(bench);
  const std::string progress = GetCapturedStderr();
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(progress, HasSubstr("(15/16)"));
  EXPECT_THAT(progress, HasSubstr("cnn/2x1, Python with 2 workers\n"));
  ASSERT_THAT(*results, SizeIs(2));
  EXPECT_EQ(results->front().name, "cnn/1x1");
  EXPECT_EQ(results->back().name, "cnn/2x1");
  for (const JobResult& each : *results) {
    ASSERT_THAT(each.ours, SizeIs(1));
    ASSERT_THAT(each.peer, SizeIs(1));
    ExpectParts(each.ours.front());
    ExpectParts(each.peer.front());
    EXPECT_GT(each.ours.front().checkpoint_s, 0);
    EXPECT_EQ(each.ours.front().steps, 3);
    EXPECT_THAT(each.ours.front().losses, SizeIs(1));
    EXPECT_EQ(each.peer.front().floor_s, 1.5);
  }
}

TEST(CompareJobsTest, ThePeerIsToldWhatToDo) {
  JobBench bench = Bench();
  bench.peer_workers = {2};
  bench.setup.options.steps = 0;
  const auto results = CompareJobs(bench);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->front().ours.front().steps, 4);  // the epoch
  EXPECT_EQ(results->front().peer_workers, 2);
  std::vector<nlohmann::json> jobs;
  std::ifstream file(TestFolder() + "/cnn_1x1/flags");
  for (std::string line; std::getline(file, line);) {
    jobs.push_back(nlohmann::json::parse(line));
  }
  ASSERT_THAT(jobs, SizeIs(3));  // the first steps, the whole job, a round
  EXPECT_EQ(jobs[0].at("max_steps"), "10");
  EXPECT_EQ(jobs[0].at("log_every"), "1");
  for (size_t i = 1; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i].at("max_steps"), "0");
    EXPECT_EQ(jobs[i].at("log_every"), "25");
  }
  EXPECT_EQ(jobs[2].at("model"), "cnn");
  EXPECT_EQ(jobs[2].at("batch_size"), "64");
  EXPECT_EQ(jobs[2].at("learning_rate"), "0.05");
  EXPECT_EQ(jobs[2].at("ranks"), "1");
  EXPECT_EQ(jobs[2].at("workers"), "2");
  EXPECT_EQ(jobs[2].at("data_dir"), bench.setup.data_dir);
}

TEST(CompareJobsTest, OtherLossesAreNotTimed) {
  JobBench bench = Bench();
  bench.setup.peer.emplace_back("--loss_times=1.001");
  EXPECT_THAT(CompareJobs(bench).status(),
              StatusIs(absl::StatusCode::kInternal, "step 1: tandem's loss is",
                       "Python with 0 workers's"));
}

TEST(CompareJobsTest, AnotherEndIsNotTimed) {
  JobBench bench = Bench();
  bench.setup.peer.emplace_back("--test_loss_times=2");
  EXPECT_THAT(CompareJobs(bench).status(), StatusIs(absl::StatusCode::kInternal,
                                                    "cnn/1x1: tandem's test "
                                                    "loss is"));
}

TEST(JobRunTest, AJobThatFailsIsAnError) {
  JobBench bench = Bench();
  JobPlan plan;
  plan.workload = bench.cases.front().workload;
  bench.setup.data_dir = "/no/such/folder";
  EXPECT_THAT(
      RunTandem(plan, bench.setup).status(),
      StatusIs(absl::StatusCode::kInternal, "exit code 2", "/no/such/folder"));
  bench.setup.peer = {"/bin/sh", "-c", "echo no torch >&2; exit 1"};
  EXPECT_THAT(RunPeer(plan, 0, bench.setup).status(),
              StatusIs(absl::StatusCode::kInternal, "exit code 1: no torch"));
  bench.setup.peer = {"/bin/sh", "-c", "echo done"};
  EXPECT_THAT(RunPeer(plan, 0, bench.setup).status(),
              Says("the peer's last line has no figures: 'done'"));
}

JobRun MadeRun(double whole_s, double loss) {
  JobRun run;
  run.whole_s = whole_s;
  run.start_s = 1;
  run.training_s = whole_s - 2;
  run.checkpoint_s = 0.125;
  run.evaluation_s = 0.625;
  run.end_s = 0.25;
  run.floor_s = whole_s - 3;
  run.steps = 937;
  run.losses = {2.0, loss};
  run.test_loss = 0.5;
  run.test_accuracy = 0.8;
  return run;
}

TEST(CompareEndsTest, NamesWhatDiffers) {
  const JobRun ours = MadeRun(10, 0.5);
  const auto compared = [&](auto change) {
    JobRun peer = ours;
    change(peer);
    return CompareEnds("job", ours, peer, 0.05);
  };
  EXPECT_TRUE(compared([](JobRun& peer) {
                peer.losses.back() = 0.52;
                peer.test_loss = 0.48;
                peer.test_accuracy = 0.77;
              }).ok());
  EXPECT_THAT(compared([](JobRun& peer) { peer.losses.back() = 0.53; }),
              Says("job: tandem's last loss is 0.5, its peer's is 0.53"));
  EXPECT_THAT(compared([](JobRun& peer) { peer.test_loss = NAN; }),
              Says("tandem's test loss is 0.5, its peer's is nan"));
  EXPECT_THAT(compared([](JobRun& peer) { peer.test_accuracy = 0.7; }),
              Says("tandem's test accuracy is 0.8, its peer's is 0.7"));
  EXPECT_THAT(compared([](JobRun& peer) { peer.steps = 938; }),
              Says("tandem's number of steps is 937, its peer's is 938"));
}

TEST(JobTablesTest, HaveTheWholeItsPartsAndItsEnd) {
  JobResult result;
  result.name = "cnn/1x1";
  result.peer_workers = 2;
  result.ours = {MadeRun(10, 0.5), MadeRun(12, 0.5), MadeRun(11, 0.5)};
  result.peer = {MadeRun(20, 0.5), MadeRun(36, 0.5), MadeRun(22, 0.625)};
  const nlohmann::json figures = TablesJson(JobTables({result}));
  EXPECT_EQ(figures["jobs"], (nlohmann::json::array({{{"name", "cnn/1x1"},
                                                      {"steps", 937},
                                                      {"ours_s", 11.0},
                                                      {"peer_s", 22.0},
                                                      {"ratio", 2.0},
                                                      {"ratio_min", 2.0},
                                                      {"ratio_max", 3.0},
                                                      {"our_floor_s", 8.0},
                                                      {"peer_floor_s", 19.0},
                                                      {"peer_workers", 2}}})));
  ASSERT_THAT(figures["parts"], SizeIs(2));
  EXPECT_EQ(figures["parts"][1], (nlohmann::json{{"name", "cnn/1x1"},
                                                 {"side", "peer"},
                                                 {"start_s", 1.0},
                                                 {"training_s", 20.0},
                                                 {"checkpoint_s", 0.125},
                                                 {"evaluation_s", 0.625},
                                                 {"end_s", 0.25}}));
  ASSERT_THAT(figures["ends"], SizeIs(2));
  EXPECT_EQ(figures["ends"][0].at("side"), "tandem");
  EXPECT_EQ(figures["ends"][1], (nlohmann::json{{"name", "cnn/1x1"},
                                                {"side", "peer"},
                                                {"loss", 0.625},
                                                {"test_loss", 0.5},
                                                {"test_accuracy", 0.8}}));
}

TEST(RunJobSuiteTest, RefusesWhatItDoesNotKnow) {
  BenchFlags flags;
  flags.cases = {"gpt2"};
  EXPECT_THAT(RunJobSuite(flags, "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "gpt2",
                       "cnn/1x1, cnn/2x1, resnet18/1x1"));
  flags.cases = {"cnn"};
  flags.rounds = 0;
  EXPECT_EQ(RunJobSuite(flags, "").status(),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
  flags.rounds = 1;
  flags.python = "/no/such/python";
  EXPECT_THAT(RunJobSuite(flags, "").status(), Says("/no/such/python"));
}

}  // namespace
}  // namespace tandem::job_suite_test
