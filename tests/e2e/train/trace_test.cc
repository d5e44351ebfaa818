// --trace_file: what a viewer shows of some steps of a job.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/chrome_trace.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::SizeIs;
using testing::StartsWith;

ChromeTrace TraceIn(const std::string& path) {
  const auto trace = ReadChromeTrace(FileContents(path));
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.value_or(ChromeTrace());
}

// The trace of a job with these flags, and what the job printed.
ChromeTrace TraceOf(const Flags& flags, std::string* printed = nullptr) {
  const std::string path = NewFolder("trace") + "/trace.json";
  const ProgramResult result =
      RunProgram(kTrain, Joined(flags, {"--trace_file=" + path}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  if (printed != nullptr) *printed = result.out;
  return TraceIn(path);
}

// Names of slices of a track that lie in this one, on its rank.
std::vector<std::string> NamesWithin(const ChromeTrace& trace,
                                     const ChromeSlice& outer,
                                     const std::string& track) {
  std::vector<std::string> names;
  for (const ChromeSlice& each : trace.slices) {
    if (each.process == outer.process && each.track == track &&
        outer.begin <= each.begin && each.end <= outer.end &&
        each.name != outer.name) {
      names.push_back(each.name);
    }
  }
  return names;
}

TEST(TraceTest, ADevicesStepsAreShownInPhasesAndLayers) {
  std::string printed;
  const ChromeTrace trace =
      TraceOf(Small("--max_steps=4 --trace_steps=2-3"), &printed);
  EXPECT_THAT(printed, HasSubstr("trace of steps 2-3: "));
  ASSERT_THAT(trace.processes, SizeIs(1));
  EXPECT_THAT(trace.processes.at(0), StartsWith("rank 0 ("));
  EXPECT_THAT(trace.SliceNames(0, "steps"), ElementsAre("step 2", "step 3"));
  EXPECT_THAT(
      trace.SliceNames(0, "host"),
      ElementsAre("load batch", "forward/backward", "update", "report",
                  "load batch", "forward/backward", "update", "report"));
  for (const ChromeSlice& step : trace.slices) {
    if (step.track != "steps") continue;
    EXPECT_THAT(
        NamesWithin(trace, step, "host"),
        ElementsAre("load batch", "forward/backward", "update", "report"));
    EXPECT_THAT(NamesWithin(trace, step, "device 0"),
                IsSupersetOf({"forward 0 of stage 0", "loss",
                              "backward 0 of stage 0", "update"}));
    EXPECT_THAT(NamesWithin(trace, step, "compute"), ElementsAre("optimizer"));
  }
  const auto forwards = trace.SlicesNamed("forward 0 of stage 0");
  ASSERT_THAT(forwards, SizeIs(2));
  for (const ChromeSlice& each : forwards) {
    // Its layers, and the loss.
    EXPECT_THAT(NamesWithin(trace, each, "device 0"),
                IsSupersetOf({"fc1", "relu1", "fc8", "loss"}));
  }
  const auto backwards = trace.SlicesNamed("backward 0 of stage 0");
  ASSERT_THAT(backwards, SizeIs(2));
  for (const ChromeSlice& each : backwards) {
    const auto layers = NamesWithin(trace, each, "device 0");
    // Nobody asks for the gradient of what is only put in another shape.
    EXPECT_THAT(layers, SizeIs(15));
    EXPECT_EQ(layers.front(), "fc8 (backward)");
    EXPECT_EQ(layers.back(), "fc1 (backward)");
  }
  EXPECT_THAT(trace.flows, SizeIs(0));
}

TEST(TraceTest, TheStepThatNobodyNamesIsTheThird) {
  std::string printed;
  const ChromeTrace trace = TraceOf(Small("--max_steps=4"), &printed);
  EXPECT_THAT(printed, HasSubstr("trace of step 3: "));
  EXPECT_THAT(trace.SliceNames(0, "steps"), ElementsAre("step 3"));
}

TEST(TraceTest, MemoryIsCounted) {
  const ChromeTrace trace =
      TraceOf(Small("--max_steps=2 --trace_steps=1-2 --device=sim "
                    "--device_memory=1GiB"));
  std::map<std::string, std::vector<ChromeSample>> counters;
  for (const ChromeSample& each : trace.samples) {
    counters[each.counter].push_back(each);
  }
  ASSERT_THAT(counters["resident memory"], SizeIs(Ge(4u)));
  for (const ChromeSample& each : counters["resident memory"]) {
    EXPECT_GT(each.values.at("bytes"), 1 << 20);
  }
  const auto& held = counters["memory of sim:0"];
  // After each forward and backward.
  ASSERT_THAT(held, SizeIs(4));
  for (const ChromeSample& each : held) {
    EXPECT_GT(each.values.at("parameters"), 0);
    EXPECT_EQ(each.values.at("parameters"), held[0].values.at("parameters"));
  }
  EXPECT_GT(held[0].values.at("activations"), held[1].values.at("activations"));
}

struct Place {
  std::string name;
  std::string flags;
};

class TracedPipelineTest : public testing::TestWithParam<Place> {};

// Three stages of mlp_deep, four microbatches, two steps.
TEST_P(TracedPipelineTest, EveryMessageIsAnArrow) {
  const ChromeTrace trace =
      TraceOf(Small("--model=mlp_deep --strategy=pipeline --schedule=1f1b "
                    "--microbatches=4 --max_steps=3 --trace_steps=2-3 " +
                    GetParam().flags));
  std::multiset<std::pair<std::string, std::string>> arrows;
  for (const ChromeFlow& each : trace.flows) {
    arrows.emplace(each.from.name, each.to.name);
    EXPECT_NE(std::pair(each.from.process, each.from.track),
              std::pair(each.to.process, each.to.track));
  }
  std::multiset<std::pair<std::string, std::string>> expected;
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    const std::string number = std::to_string(microbatch);
    for (int stage = 0; stage < 2; ++stage) {
      const std::string one = number + " of stage " + std::to_string(stage);
      const std::string next =
          number + " of stage " + std::to_string(stage + 1);
      for (int step = 0; step < 2; ++step) {
        expected.emplace("forward " + one, "forward " + next);
        expected.emplace("backward " + next, "backward " + one);
      }
    }
  }
  EXPECT_EQ(arrows, expected);
  for (const auto& [rank, name] : trace.processes) {
    EXPECT_THAT(trace.SliceNames(rank, "steps"),
                ElementsAre("step 2", "step 3"));
  }
  for (const auto& rank : trace.ranks) {
    EXPECT_EQ(rank["clock_offset_us"], 0) << "one host";
    EXPECT_EQ(rank["dropped_events"], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TracedPipelineTest,
    testing::Values(Place{"Devices", "--devices_per_rank=3"},
                    Place{"Ranks", "--nproc_per_node=3 --pipe=3"}),
    [](const auto& info) { return info.param.name; });

TEST(TraceTest, ReplicasExchangeBeside) {
  const ChromeTrace trace =
      TraceOf(Small("--nproc_per_node=2 --max_steps=2 --trace_steps=2"));
  ASSERT_THAT(trace.processes, SizeIs(2));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(trace.SliceNames(rank, "communication"),
                Contains(HasSubstr("all-reduce of bucket")));
  }
}

// What there is by then is not lost.
TEST(TraceTest, AJobThatIsStoppedShowsWhatItHasDone) {
  const std::string path = NewFolder("trace") + "/trace.json";
  Program program(kTrain,
                  Joined(Small("--epochs=1000 --log_every=1"),
                         {"--trace_steps=2-6000", "--trace_file=" + path}),
                  FaultOf("point=before_optimizer,action=delay:0.05"));
  ASSERT_TRUE(program.WaitForOutput("step    4")) << program.Wait().err;
  StopBySignal(program, SIGTERM);
  const ChromeTrace trace = TraceIn(path);
  const std::vector<std::string> steps = trace.SliceNames(0, "steps");
  ASSERT_THAT(steps, SizeIs(Ge(2u)));
  EXPECT_EQ(steps[0], "step 2");
}

TEST(TraceTest, WhereItCannotBeWrittenTrainingGoesOn) {
  const ProgramResult result = RunProgram(
      kTrain, Small("--max_steps=4 --trace_file=/nonexistent/trace.json"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("warning: --trace_file: "),
                                HasSubstr("/nonexistent/trace.json"),
                                HasSubstr("training goes on without the trace"),
                                HasSubstr("step 4/")));
}

}  // namespace
}  // namespace tandem
