// What all programs have in common: what they end with, and that what others
// have written in a file does nothing to a terminal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/program.h"

namespace tandem::programs_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Arguments = std::vector<std::string>;

// With the exit code 2 and a message on stderr that begins with its name.
void ExpectRefused(const std::string& name, const Arguments& arguments,
                   const std::string& says) {
  const ProgramResult result =
      RunProgram(absl::StrCat("tools/", name), arguments);
  EXPECT_EQ(result.exit_code, 2) << name << ": " << result.err;
  EXPECT_THAT(result.err,
              AllOf(StartsWith(absl::StrCat(name, ": ")), HasSubstr(says)));
}

Arguments SmallJob(const std::string& more) {
  return {"--model=mlp_small",
          "--dataset=synthetic",
          "--synthetic_shape=1,8,8",
          "--synthetic_samples=16",
          "--batch_size=16",
          "--save_dir=",
          more};
}

TEST(ProgramsTest, AWrongFlagIsRefused) {
  for (const char* name : {"diagnose", "doctor", "export", "generate",
                           "inspect", "schedule", "tokenize", "train"}) {
    ExpectRefused(name, {"--no_such_flag"}, "no_such_flag");
  }
}

TEST(ProgramsTest, APathThatIsNotThereIsRefused) {
  const std::string none = "/no/such/file";
  ExpectRefused("diagnose", {none}, none);
  ExpectRefused("export", {"--checkpoint=" + none, "--output=o"}, none);
  ExpectRefused("generate", {"--checkpoint=" + none, "--prompt=A"}, none);
  ExpectRefused("inspect", {none}, none);
  ExpectRefused("schedule", {"--schedule=" + none}, none);
  ExpectRefused("tokenize", {"--input=" + none, "--output=o"}, none);
  ExpectRefused("train", SmallJob("--resume=" + none), none);
}

TEST(ProgramsTest, WhatElseFailsIsTold) {
  const ProgramResult result =
      RunProgram("tools/schedule", {"--svg=/proc/no_such_file"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, StartsWith("schedule: "));
}

// A file of one tensor of one float.
std::string FileOfTensor(const std::string& name_in_json) {
  const std::string path = NewFolder("escapes") + "/tensor.safetensors";
  const std::string header = absl::StrCat(
      R"({"__metadata__":{"made_\u001b[1mby":"them\u0007"},")", name_in_json,
      R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})");
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) {
    file.put(static_cast<char>(uint64_t{header.size()} >> (8 * i)));
  }
  file << header << std::string(4, '\0');
  return path;
}

TEST(ProgramsTest, NamesInFilesDoNothingToATerminal) {
  const std::string path = FileOfTensor(R"(fc\u001b[2J\u009b31m\n1)");
  const std::string shown = "fc\\x1b[2J\\xc2\\x9b31m\\n1";
  const ProgramResult table = RunProgram("tools/inspect", {path});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr(shown), HasSubstr("made_\\x1b[1mby"),
                               HasSubstr("them\\x07")));
  const ProgramResult json = RunProgram("tools/inspect", {"--json", path});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const ProgramResult error =
      RunProgram("tools/train", SmallJob("--init_from=" + path));
  EXPECT_EQ(error.exit_code, 2) << error.out;
  EXPECT_THAT(error.err, HasSubstr("left over: fc\\x1b[2J"));
  for (const std::string& text : {table.out, json.out, error.out, error.err}) {
    EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x07")),
                            Not(HasSubstr("\xc2\x9b"))));
  }
}

struct WrongSchedule {
  Arguments flags;
  std::string says;
};

// None of these ends in an abort, or in a number that is none.
TEST(ProgramsTest, WhatNoScheduleCanBeIsRefused) {
  const std::string file = NewFolder("schedule") + "/own.txt";
  std::ofstream(file) << "F0 F1 B0 B1\nF0 B0 F1 B1\n";
  for (const WrongSchedule& each : std::vector<WrongSchedule>{
           {{"--columns=-1"}, "--columns=-1: must be from 10 to 1000"},
           {{"--columns=2000000000"}, "--columns=2000000000"},
           {{"--times=0,0"}, "no stage takes any time"},
           {{"--times=inf,1"}, "times 'inf,1'"},
           {{"--times=1e-320,0"}, "times '1e-320,0'"},
           {{"--transfer=inf"}, "--transfer=inf"},
           {{"--transfer=-1"}, "--transfer=-1"},
           {{"--channel_capacity=-2"}, "--channel_capacity=-2"},
           {{"--stages=100000", "--microbatches=100000"}, "--stages=100000"},
           {{"--stages=10000", "--microbatches=1000000"},
            "more than the 2097152 forwards"},
           {{"--schedule=" + file, "--stages=8"},
            "--stages=8 was given, but the file of --schedule says that"},
           {{"--stage_times=1,1;1,1;1,1;1,1", "--times=3,4"},
            "--times=3,4 was given"}}) {
    ExpectRefused("schedule", each.flags, each.says);
  }
  const ProgramResult fine =
      RunProgram("tools/schedule", {"--times=0,1", "--columns=10"});
  EXPECT_EQ(fine.exit_code, 0) << fine.err;
  EXPECT_THAT(fine.out, Not(HasSubstr("nan")));
}

// Inspection, as a user runs it.
ProgramResult RunInspect(const std::vector<std::string>& arguments,
                         const ProgramOptions& options = ProgramOptions()) {
  return RunProgram("tools/inspect", arguments, options);
}

const char kFile[] = "tests/core/checkpoint/data/python.safetensors";

TEST(Inspect, PrintsAFileOfAnotherTool) {
  const ProgramResult table = RunInspect({kFile});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("12 tensors, 198 bytes"));
  const ProgramResult json = RunInspect({"--json", kFile});
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_THAT(json.out, StartsWith("{\"file\":"));
}

TEST(Inspect, PathsAreFromWhereTheUserStands) {
  ProgramOptions nowhere;
  nowhere.environment["BUILD_WORKING_DIRECTORY"] = "/nowhere";
  const ProgramResult result = RunInspect({"here"}, nowhere);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("/nowhere/here"));
}

TEST(Inspect, WhatWasGivenWronglyIsALineAndExitCodeTwo) {
  const ProgramResult bad = RunInspect({"tests/tools/BUILD"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, StartsWith("inspect: tests/tools/BUILD"));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{}, {"--what"}, {"a", "b"}}) {
    const ProgramResult result = RunInspect(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out + result.err, HasSubstr("usage: "));
  }
  EXPECT_EQ(RunInspect({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace tandem::programs_test
