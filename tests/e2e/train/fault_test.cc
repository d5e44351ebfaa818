// A rank that dies, freezes or differs, at a named point of a step: what each
// survivor says, how soon it ends, and that nothing is left.
//
// Ranks are started here, without tandem's launcher, which would stop the
// survivors before they have found out for themselves.

#include <signal.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/process_testing.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 3;
constexpr int kCulprit = 1;
constexpr int kTimeout = 4;     // seconds, --timeout
constexpr int kTimeToSay = 10;  // seconds from then until every rank has ended

class Ranks {
 public:
  // `flags_of_culprit` are added to those of all.
  Ranks(const Flags& flags, const std::string& fault,
        const Flags& flags_of_culprit = {}) {
    const std::string port = std::to_string(FreePort());
    for (int rank = 0; rank < kRanks; ++rank) {
      ProgramOptions options;
      options.environment = {{"RANK", std::to_string(rank)},
                             {"LOCAL_RANK", std::to_string(rank)},
                             {"WORLD_SIZE", std::to_string(kRanks)},
                             {"LOCAL_WORLD_SIZE", std::to_string(kRanks)},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", port},
                             {"TANDEM_FAULT", fault}};
      Flags mine = flags;
      if (rank == kCulprit) {
        mine.insert(mine.end(), flags_of_culprit.begin(),
                    flags_of_culprit.end());
      }
      ranks_.push_back(std::make_unique<Program>(kTrain, mine, options));
    }
  }

  Program& operator[](int rank) { return *ranks_[rank]; }

  // Stopped by SIGSTOP, or dead.
  bool CulpritIsOut() {
    const std::string stat = FileContents(
        "/proc/" + std::to_string(ranks_[kCulprit]->pid()) + "/stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) return true;
    const char state = stat[name_end + 2];
    return state == 'T' || state == 'Z' || state == 'X';
  }

  // Ends the frozen one, too; then nothing may be left.
  void ExpectNoProcessLeft() {
    ranks_[kCulprit]->Signal(SIGKILL);
    ranks_[kCulprit]->Wait();
    for (const auto& rank : ranks_) {
      EXPECT_TRUE(rank->LivingProcesses().empty());
    }
  }

 private:
  std::vector<std::unique_ptr<Program>> ranks_;
};

Flags Job(const std::string& backend) {
  // Small buckets, so that there are several.
  return SmallJob({"--epochs=1000", "--batch_size=12", "--bucket_cap_mb=0.02",
                   "--backend=" + backend,
                   "--timeout=" + std::to_string(kTimeout)});
}

// Backend, point, action.
using Cell = std::tuple<std::string, std::string, std::string>;

class FaultTest : public testing::TestWithParam<Cell> {
 protected:
  static void TearDownTestSuite() {
    std::cout << cells_ << " cells: backend x point x action\n";
  }
  static int cells_;
};

int FaultTest::cells_ = 0;

TEST_P(FaultTest, EverySurvivorNamesTheCulpritInTime) {
  const auto& [backend, point, action] = GetParam();
  std::cout << "cell " << ++cells_ << ": " << backend << ", " << point << ", "
            << action << "\n";
  Ranks ranks(Job(backend),
              "point=" + point + ",rank=1,step=3,action=" + action);
  ASSERT_TRUE(Eventually([&] { return ranks.CulpritIsOut(); }));
  const auto out = steady_clock::now();
  const auto bound =
      seconds(action == "stop" ? kTimeout + kTimeToSay : kTimeToSay);
  for (int rank : {0, 2}) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_LT(steady_clock::now() - out, bound) << "rank " << rank;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    // Names the culprit, and nobody else.
    EXPECT_TRUE(std::regex_search(
        result.err, std::regex("(not heard of: rank 1\\b)|(rank 1 \\(pid "
                               "[0-9]+\\) died)|(waiting for rank 1 \\(pid)")))
        << result.err;
    for (const char* innocent : {"0", "2"}) {
      EXPECT_THAT(result.err,
                  Not(HasSubstr("not heard of: rank " + std::string(innocent))))
          << result.err;
    }
    // In which step; a fault after the reduction shows in the next one.
    EXPECT_TRUE(std::regex_search(result.err, std::regex("of step [34]")))
        << result.err;
  }
  ranks.ExpectNoProcessLeft();
}

INSTANTIATE_TEST_SUITE_P(Cells, FaultTest,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::Values("after_forward",
                                                          "bucket:1",
                                                          "before_optimizer"),
                                          testing::Values("kill", "stop")));

class BackendTest : public testing::TestWithParam<const char*> {};

TEST_P(BackendTest, AnErrorOnOneRankIsToldByAll) {
  Ranks ranks(Job(GetParam()),
              "point=before_optimizer,rank=1,step=3,action=fail");
  const auto began = steady_clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("before_optimizer")) << "rank " << rank;
    if (rank != kCulprit) {
      EXPECT_THAT(result.err, HasSubstr("rank 1"));
    }
  }
  EXPECT_LT(steady_clock::now() - began, seconds(60));
  ranks.ExpectNoProcessLeft();
}

TEST_P(BackendTest, ADifferentModelIsNamedByAll) {
  Ranks ranks(Job(GetParam()), "", {"--model=mlp_deep"});
  for (int rank = 0; rank < kRanks; ++rank) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err,
                HasSubstr("the model of rank 1 differs from that of rank 0"))
        << "rank " << rank;
  }
  ranks.ExpectNoProcessLeft();
}

TEST_P(BackendTest, ALateRankIsNamedAndTheJobGoesOn) {
  Flags flags = Job(GetParam());
  flags.push_back("--straggler_warning=0.5");
  flags.push_back("--max_steps=4");
  Ranks ranks(flags, "point=after_forward,rank=1,step=3,action=delay:1.5");
  std::string said;
  for (int rank = 0; rank < kRanks; ++rank) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    said += result.err;
  }
  EXPECT_TRUE(std::regex_search(said, std::regex("rank 1 .*late"))) << said;
  EXPECT_THAT(said, HasSubstr("of step 3"));
}

// PyTorch's DDP logger and a trace tell how much of the all-reduce backward
// hides.
TEST_P(BackendTest, TraceShowsAllReduceWhileBackwardRuns) {
  const std::string folder = NewFolder("trace");
  Flags flags = Job(GetParam());
  flags.push_back("--max_steps=4");
  flags.push_back("--trace_file=" + folder + "/trace.json");
  flags.push_back("--nproc_per_node=2");
  const ProgramResult result = RunProgram(kTrain, flags);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto trace =
      nlohmann::json::parse(FileContents(folder + "/trace.json"));
  for (int rank : {0, 1}) {
    double backward_begins = 0, backward_ends = 0, first_all_reduce = 0;
    int all_reduces = 0;
    for (const auto& event : trace["traceEvents"]) {
      if (event["pid"] != rank || event["ph"] != "X") continue;
      const std::string name = event["name"];
      const double begin = event["ts"];
      if (name == "backward") {
        backward_begins = begin;
        backward_ends = begin + event["dur"].get<double>();
      } else if (name.rfind("all-reduce of bucket", 0) == 0) {
        if (all_reduces++ == 0) first_all_reduce = begin;
      }
    }
    EXPECT_GE(all_reduces, 2) << "rank " << rank;
    EXPECT_GT(first_all_reduce, backward_begins);
    EXPECT_LT(first_all_reduce, backward_ends);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendTest, testing::Values("shm", "gloo"));

}  // namespace
}  // namespace tandem
