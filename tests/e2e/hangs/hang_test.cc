// Injected hangs in real jobs: what the hang doctor says of the dumps that the
// ranks have left, and that these are there without having been asked for.

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr char kJob[] = "tests/e2e/hangs/hang_job_main";
constexpr char kDiagnose[] = "tools/diagnose";
constexpr int kCells = 80;

struct Layout {
  const char* name;
  std::vector<std::string> flags;
  int ranks;
  std::vector<int> culprits = {0, 2};
};

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout>* const layouts = new std::vector<Layout>{
      {"ddp", {"--layout=ddp"}, 3},
      {"ddp over Gloo", {"--layout=ddp", "--backend=gloo"}, 3},
      {"pipeline", {"--layout=pipeline"}, 3},
      {"hybrid", {"--layout=hybrid"}, 4},
      {"tensor", {"--layout=tensor"}, 2, {0, 1}},
      {"data x tensor", {"--layout=tensor"}, 4},
      {"pipe x tensor", {"--layout=tensor_pipe"}, 4},
      {"fully sharded", {"--layout=sharded"}, 3},
  };
  return *layouts;
}

const Layout& LayoutNamed(const std::string& name) {
  for (const Layout& each : Layouts()) {
    if (each.name == name) return each;
  }
  return Layouts().front();
}

// The ranks of a job, one of which hangs the others. Without tandem's launcher,
// which would end them one after the other.
class HungJob {
 public:
  HungJob(const Layout& layout, const std::string& hang, int culprit,
          const std::map<std::string, std::string>& environment = {})
      : folder_(NewFolder("flight")), culprit_(culprit) {
    const StartTurn turn;
    const std::string port = std::to_string(FreePort());
    for (int rank = 0; rank < layout.ranks; ++rank) {
      ProgramOptions options;
      options.environment = environment;
      options.environment["RANK"] = std::to_string(rank);
      options.environment["LOCAL_RANK"] = std::to_string(rank);
      options.environment["WORLD_SIZE"] = std::to_string(layout.ranks);
      options.environment["LOCAL_WORLD_SIZE"] = std::to_string(layout.ranks);
      options.environment["MASTER_ADDR"] = "127.0.0.1";
      options.environment["MASTER_PORT"] = port;
      options.environment["TMPDIR"] = folder_;
      std::vector<std::string> flags = layout.flags;
      flags.push_back("--hang=" + hang);
      flags.push_back("--culprit=" + std::to_string(culprit));
      ranks_.push_back(std::make_unique<Program>(kJob, flags, options));
    }
    ranks_[static_cast<size_t>(culprit)]->WaitForOutput("hangs: " + hang);
  }

  // Waits for all but a culprit that is frozen. What a rank that is no culprit
  // said.
  std::string Await(bool culprit_ends) {
    std::string said;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (rank == culprit_ && !culprit_ends) continue;
      const ProgramResult result = ranks_[static_cast<size_t>(rank)]->Wait();
      EXPECT_NE(result.exit_code, 0) << result.err;
      if (rank != culprit_) said = result.err;
    }
    return said;
  }

  // Where the job has written: the one folder among temporary files.
  std::string DumpFolder() const {
    for (const auto& each : fs::directory_iterator(folder_)) {
      const std::string name = each.path().filename();
      if (name.rfind("tandem-flight-", 0) == 0) return each.path();
    }
    return "";
  }

 private:
  const std::string folder_;
  const int culprit_;
  std::vector<std::unique_ptr<Program>> ranks_;
};

// What the doctor calls the fault, and the operation that others wait in.
struct Expected {
  std::string fault;
  std::string operation;
};

bool SharesLayers(const std::string& layout) {
  return layout.find("tensor") != std::string::npos;
}

// Where ranks share layers or parameters.
Expected ExpectedOfShared(const std::string& layout, const std::string& hang) {
  const bool sharded = layout == "fully sharded";
  const std::map<std::string, std::string> faults = {{"stop", "absent"},
                                                     {"late", "(late|behind)"},
                                                     {"group", "other group"},
                                                     {"shape", "other shape"},
                                                     {"order", "other order"}};
  const std::string parameters = "#[0-9]+ \\(parameters of layer";
  const std::string gradients = "#[0-9]+ \\(gradients of layer";
  std::string activations =
      "all-reduce #[0-9]+ \\(activations that come out of transformer\\.";
  const bool unlike = hang == "shape" || hang == "order";
  if (sharded) return {faults.at(hang), unlike ? gradients : parameters};
  // Its replica or its neighbour along the pipeline may wait for longer.
  if (!unlike && layout != "tensor") {
    activations += layout == "data x tensor"
                       ? "|all-reduce #[0-9]+ \\(bucket"
                       : "|receive from rank [0-9]+ \\((activations|gradients) "
                         "of microbatch";
  }
  return {faults.at(hang), "(" + activations + ")"};
}

Expected ExpectedOf(const std::string& layout, const std::string& hang) {
  const bool ddp = layout.rfind("ddp", 0) == 0;
  // Nobody knows whether a frozen rank has begun bucket 0.
  const std::string bucket = absl::StrCat("all-reduce #[0-9]+ \\(bucket ",
                                          hang == "stop" ? "[01]" : "1", "\\)");
  const std::string message =
      "(receive from rank [0-9]+ \\((activations|gradients) of microbatch|"
      "send to rank [0-9]+ \\((activations|gradients) of microbatch|"
      "all-reduce)";
  if (layout == "fully sharded" || SharesLayers(layout)) {
    return ExpectedOfShared(layout, hang);
  }
  if (hang == "stop") return {"absent", ddp ? bucket : message};
  if (hang == "late") return {"(late|behind)", ddp ? bucket : message};
  if (hang == "group") return {"other group", ddp ? bucket : message};
  return {hang == "shape" ? "other shape" : "other order",
          ddp ? bucket : "all-reduce #[0-9]+"};
}

ProgramResult Diagnose(const std::string& folder) {
  return RunProgram(kDiagnose, {folder});
}

void ExpectNamed(const ProgramResult& told, int culprit,
                 const Expected& expected) {
  EXPECT_EQ(told.exit_code, 1) << told.err;
  EXPECT_THAT(told.out, ContainsRegex("Rank " + std::to_string(culprit) +
                                      " is at fault \\(" + expected.fault +
                                      "\\): .*" + expected.operation))
      << told.out;
}

// Layout, hang, culprit.
using Cell = std::tuple<std::string, std::string, int>;

class HangTest : public testing::TestWithParam<Cell> {};

TEST_P(HangTest, TheDoctorNamesTheCulprit) {
  const auto& [layout, hang, culprit] = GetParam();
  std::cout << layout << ", " << hang << ", rank " << culprit << "\n";
  HungJob job(LayoutNamed(layout), hang, culprit);
  const std::string said = job.Await(/*culprit_ends=*/hang != "stop");
  const std::string folder = job.DumpFolder();
  ASSERT_FALSE(folder.empty()) << said;
  EXPECT_THAT(said, HasSubstr("bazel run //tools:diagnose -- " + folder));
  const ProgramResult told = Diagnose(folder);
  std::cout << told.out;
  ExpectNamed(told, culprit, ExpectedOf(layout, hang));
  if (SharesLayers(layout)) {
    EXPECT_THAT(told.out, HasSubstr("(activations that come out of"));
  }
}

std::vector<Cell> Cells() {
  std::vector<Cell> cells;
  for (const Layout& layout : Layouts()) {
    for (const char* hang : {"stop", "late", "shape", "order", "group"}) {
      for (const int culprit : layout.culprits) {
        cells.emplace_back(layout.name, hang, culprit);
      }
    }
  }
  return cells;
}

INSTANTIATE_TEST_SUITE_P(Cells, HangTest, testing::ValuesIn(Cells()));

TEST(HangTestCells, NoneIsMissing) {
  std::cout << Cells().size() << " cells\n";
  EXPECT_EQ(Cells().size(), static_cast<size_t>(kCells));
}

// Ranks that compare what they start find it at once, and leave dumps as well.
TEST(CheckedHangTest, IsDiagnosedToo) {
  for (const std::string hang : {"shape", "order"}) {
    HungJob job(LayoutNamed("ddp"), hang, 1,
                {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
    job.Await(/*culprit_ends=*/true);
    ExpectNamed(Diagnose(job.DumpFolder()), 1, ExpectedOf("ddp", hang));
  }
}

// A launched job, whose launcher stops the rank that the others wait for.
TEST(LaunchedHangTest, TheRankThatIsBehindTellsWhatItDoes) {
  const std::string folder = NewFolder("flight") + "/dumps";
  ProgramOptions options;
  options.environment = {
      {"TANDEM_FAULT", "point=bucket:0,rank=1,step=3,action=delay:60"}};
  StartTurn turn;
  Program job(kTrain,
              SmallJob({"--nproc_per_node=3", "--epochs=1000",
                        "--batch_size=12", "--bucket_cap_mb=0.02",
                        "--timeout=8", "--flight_dir=" + folder}),
              options);
  EXPECT_TRUE(job.WaitForOutput("TANDEM_FAULT acts at"));
  turn.End();
  const ProgramResult end = job.Wait();
  EXPECT_NE(end.exit_code, 0);
  EXPECT_THAT(end.err, HasSubstr("bazel run //tools:diagnose -- " + folder));
  const ProgramResult told = Diagnose(folder);
  ExpectNamed(told, 1,
              {"behind",
               "all-reduce #[0-9]+ \\(bucket 1, step 3\\).*Rank 1 "
               "(did|is in) (all-reduce #[0-9]+ \\(bucket 0, step 3|backward "
               "of microbatch 0)"});
}

TEST(LaunchedHangTest, ASignalToTheLauncherHasEveryRankWriteOne) {
  const std::string folder = NewFolder("flight");
  Program job(kTrain, SmallJob({"--nproc_per_node=2", "--epochs=100000",
                                "--flight_dir=" + folder}));
  ASSERT_TRUE(job.WaitForOutput("accuracy"));
  job.Signal(SIGUSR2);
  const auto is_there = [&](int rank) {
    return fs::exists(folder + "/rank_" + std::to_string(rank) + ".json");
  };
  EXPECT_TRUE(Eventually([&] { return is_there(0) && is_there(1); }));
  EXPECT_NE(Diagnose(folder).exit_code, 2);
  job.Signal(SIGINT);  // it went on until then
  EXPECT_EQ(job.Wait().exit_code, 128 + SIGINT);
}

TEST(LaunchedHangTest, ARingHoldsAsManyEntriesAsItWasGiven) {
  for (const int entries : {0, 3}) {
    const std::string folder = NewFolder("ring");
    Program job(kTrain,
                SmallJob({"--nproc_per_node=2", "--epochs=100000",
                          "--flight_dir=" + folder,
                          "--flight_entries=" + std::to_string(entries)}));
    ASSERT_TRUE(job.WaitForOutput("accuracy"));
    job.Signal(SIGUSR2);
    const std::string file = folder + "/rank_1.json";
    ASSERT_TRUE(Eventually([&] { return fs::exists(file); }));
    std::ifstream dump(file);
    EXPECT_EQ(nlohmann::json::parse(dump)["entries"].size(), entries);
    job.Signal(SIGINT);
    EXPECT_EQ(job.Wait().exit_code, 128 + SIGINT);
    const ProgramResult told = Diagnose(folder);
    const bool says_nothing =
        told.out.find("is not known") != std::string::npos;
    EXPECT_EQ(says_nothing, entries == 0) << told.out;
    EXPECT_EQ(told.exit_code == 2, entries == 0) << told.out << told.err;
  }
}

}  // namespace
}  // namespace tandem
