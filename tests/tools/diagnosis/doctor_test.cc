// The program, on whatever machine this is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"

namespace tandem {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kDoctor[] = "tools/doctor";

// No machine runs tests whose CPU cannot train.
TEST(DoctorTest, SaysWhatThereIs) {
  const ProgramResult result = RunProgram(kDoctor, {"--device=cpu"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* each : {"driver", "processor", "cores", "memory",
                           "shared memory", "open files", "network"}) {
    EXPECT_THAT(result.out, HasSubstr(each));
  }
  EXPECT_THAT(result.out,
              HasSubstr("a job of 1 rank on one machine, on the CPU: nothing "
                        "stops it"));
}

TEST(DoctorTest, WhatStopsAJobIsTheExitCode) {
  const ProgramResult result =
      RunProgram(kDoctor, {"--device=cpu", "--nproc_per_node=100000",
                           "--nnodes=100000", "--json=-"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report["stopped"], true);
  EXPECT_EQ(report["job"]["nnodes"], 100000);
}

TEST(DoctorTest, WritesAFileBesideTheWords) {
  const std::string path = NewFolder("doctor") + "/findings.json";
  const ProgramResult result =
      RunProgram(kDoctor, {"--device=cpu", "--json=" + path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nothing stops it"));
  EXPECT_EQ(nlohmann::json::parse(FileContents(path))["stopped"], false);
}

// Where no GPU is visible, whatever the machine has.
TEST(DoctorTest, GpusThatAreNotThereStopAJobOnThem) {
  ProgramOptions options;
  options.environment["CUDA_VISIBLE_DEVICES"] = "";
  const ProgramResult result = RunProgram(kDoctor, {"--device=cuda"}, options);
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("it would not run"));
}

TEST(DoctorTest, WrongFlagsAreTold) {
  for (const auto& [flag, says] :
       std::vector<std::pair<std::string, std::string>>{
           {"--device=tpu", "expected auto, cpu or cuda"},
           {"--nnodes=0", "expected 0 to 100000 and 1 to 100000"},
           {"--nproc_per_node=-1", "expected 0 to"},
           {"more", "'more' is no flag"}}) {
    const ProgramResult result = RunProgram(kDoctor, {flag});
    EXPECT_EQ(result.exit_code, 2) << flag;
    EXPECT_THAT(result.err, HasSubstr(says));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace tandem
