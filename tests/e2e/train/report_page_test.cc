// Pages about jobs: train --report, and //tools:report.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem::report_page_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kReport[] = "tools/report/report";

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A number as pages show it.
std::string Shown(double value) { return absl::StrFormat("%.4g", value); }

TEST(PageTest, OfAJobHasItsLossAndItsFingerprint) {
  const std::string path = NewFolder("page") + "/report.html";
  ProgramResult program;
  const Events events = RunJobForEvents(
      Joined(Small("--nproc_per_node=2 --pipe=2 --microbatches=4"),
             {"--report=" + path}),
      &program);
  EXPECT_THAT(program.out, HasSubstr("report in " + path));
  const auto evaluation = EventsOf(events, "eval").back();
  const auto environment = EventsOf(events, "environment").front();
  EXPECT_EQ(environment["ranks"], 2);
  const std::string page = Contents(path);
  EXPECT_THAT(page,
              AllOf(HasSubstr("<h1>mlp_small on synthetic</h1>"),
                    HasSubstr("a pipeline of 2 stages on 2 ranks (1f1b, 4 "
                              "microbatches)"),
                    HasSubstr(absl::StrCat("<dt>test loss</dt><dd>",
                                           Shown(evaluation["loss"]), "</dd>")),
                    HasSubstr(absl::StrCat("<dt>training loss</dt><dd>",
                                           Shown(LastLoss(events)), "</dd>")),
                    HasSubstr("<dt>steps</dt><dd>6</dd>"),
                    HasSubstr(Fingerprint(events)), HasSubstr("1f1b: step "),
                    HasSubstr("Where the pipeline's time went"),
                    HasSubstr("<h2>Slowest ranks</h2>"),
                    HasSubstr("<th>rank 0</th>"), HasSubstr("<th>rank 1</th>"),
                    HasSubstr(environment["libtorch"].get<std::string>())));
  EXPECT_THAT(page, Not(HasSubstr("There is no summary")));
}

// Without a metrics file events are kept for it, as for a job that is stopped.
TEST(PageTest, OfAStoppedJobHasWhatItDid) {
  const std::string folder = NewFolder("stopped");
  Program program(kTrain,
                  SmallJob({"--epochs=100000", "--report=" + folder + "/r.html",
                            "--save_dir=" + folder + "/saves"}));
  ASSERT_TRUE(program.WaitForOutput("step "));
  StopBySignal(program, SIGTERM);
  EXPECT_THAT(
      Contents(folder + "/r.html"),
      AllOf(HasSubstr("<strong>Loss</strong>"), HasSubstr("<dt>steps</dt>"),
            HasSubstr("There is no summary")));
}

TEST(PageTest, OfAJobThatGoesOnHasWhatCameBefore) {
  const std::string folder = NewFolder("goes_on");
  const Flags job =
      SmallJob({"--save_dir=" + folder + "/saves", "--resume=auto",
                "--metrics_file=" + folder + "/m.jsonl",
                "--report=" + folder + "/r.html"});
  ASSERT_EQ(RunProgram(kTrain, Joined(job, {"--epochs=1"})).exit_code, 0);
  EXPECT_THAT(Contents(folder + "/r.html"),
              HasSubstr("<dt>steps</dt><dd>6</dd>"));
  ASSERT_EQ(RunProgram(kTrain, Joined(job, {"--epochs=2"})).exit_code, 0);
  const std::string page = Contents(folder + "/r.html");
  EXPECT_THAT(page, AllOf(HasSubstr("<dt>steps</dt><dd>12</dd>"),
                          HasSubstr("of all sessions")));
  // The page of the same events, afterwards.
  ASSERT_EQ(RunProgram(kReport, {folder + "/m.jsonl",
                                 "--output=" + folder + "/after.html"})
                .exit_code,
            0);
  EXPECT_EQ(Contents(folder + "/after.html"), page);
}

TEST(ReportProgramTest, ShowsRunsSideBySide) {
  const std::string folder = NewFolder("side_by_side");
  const auto run = [&](const std::string& name, const std::string& flag) {
    const ProgramResult result = RunProgram(
        kTrain, SmallJob({flag, "--max_steps=2",
                          absl::StrCat("--metrics_file=", folder, "/", name)}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return absl::StrCat(folder, "/", name);
  };
  const std::string low = run("low.jsonl", "--learning_rate=0.01");
  const std::string high = run("high.jsonl", "--learning_rate=0.2");
  const std::string output = folder + "/both.html";
  const ProgramResult both =
      RunProgram(kReport, {low, high, "--output", output});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.err, HasSubstr(output + ": 2 runs"));
  EXPECT_THAT(Contents(output),
              AllOf(HasSubstr("<h1>2 runs of mlp_small on synthetic</h1>"),
                    HasSubstr("<bdi>low training</bdi>"),
                    HasSubstr("<th>learning_rate</th><td>0.01</td><td>0.2"),
                    Not(HasSubstr("<th>batch_size</th>"))));
}

TEST(ReportProgramTest, SaysWhatItCannotRead) {
  const std::string folder = NewFolder("unreadable");
  const auto refused = [&](const Flags& arguments) {
    const ProgramResult result =
        RunProgram(kReport, Joined(arguments, {"--output=" + folder + "/r"}));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder + "/r"));
    return result.err;
  };
  EXPECT_THAT(refused({}), HasSubstr("0 files were given"));
  EXPECT_THAT(refused({folder + "/none"}), HasSubstr(folder + "/none"));
  std::ofstream(folder + "/noise") << "\xff\xfe\n{}\n";
  EXPECT_THAT(refused({folder + "/noise"}), HasSubstr("no line is one"));
  EXPECT_THAT(refused({folder + "/noise", "--output="}),
              HasSubstr("no line is one"));
}

}  // namespace
}  // namespace tandem::report_page_test
