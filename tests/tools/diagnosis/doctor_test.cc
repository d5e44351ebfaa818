// Reports of findings, and the program that makes them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"
#include "tools/diagnosis/report.h"

namespace tandem::doctor_test {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;

const Findings kFindings = {
    {Severity::kFine, "driver", "it is new", ""},
    {Severity::kSlow, "cores", "there are few", "get more"},
};

TEST(FindingsOfTest, EveryCheckIsAsked) {
  Facts facts;
  facts.cuda.driver.missing = "no driver";
  facts.limits.files = 3;
  facts.processor.quota = 0.5;
  facts.network.loopback_error = "no loopback";
  const Findings found = AllFindings(facts, PlannedJob());
  for (const char* subject : {"driver", "processor", "cores", "memory",
                              "shared memory", "open files", "network"}) {
    EXPECT_THAT(found, Contains(testing::Field(&Finding::subject, subject)));
  }
  facts.cuda.driver = {};
  facts.cuda.driver.gpus.resize(2);
  facts.cuda.driver.links.resize(1);
  facts.cuda.in_build = true;
  const Findings more = AllFindings(facts, PlannedJob());
  for (const char* subject : {"build", "GPUs", "links", "NCCL"}) {
    EXPECT_THAT(more, Contains(testing::Field(&Finding::subject, subject)));
  }
}

TEST(ReportTest, Words) {
  EXPECT_EQ(ReportText(kFindings, {true, 2, 3}),
            "fine     driver         it is new\n"
            "slow     cores          there are few\n"
            "                        to do: get more\n"
            "\n"
            "a job of 2 ranks on 3 machines, on each, on GPUs: nothing stops "
            "it, 1 finding may slow it down\n");
}

TEST(ReportTest, WhatStops) {
  EXPECT_FALSE(IsStopped(kFindings));
  Findings stopped = kFindings;
  stopped.push_back(
      {Severity::kStopped, "network", "there is none", "mend it"});
  EXPECT_TRUE(IsStopped(stopped));
  EXPECT_THAT(
      ReportText(stopped, PlannedJob()),
      HasSubstr(
          "1 rank on one machine, on the CPU: it would not run (1 finding"));
}

TEST(ReportTest, Json) {
  const auto report =
      nlohmann::json::parse(ReportJson(kFindings, {true, 2, 3}));
  EXPECT_EQ(report["job"]["device"], "cuda");
  EXPECT_EQ(report["job"]["nproc_per_node"], 2);
  EXPECT_EQ(report["job"]["nnodes"], 3);
  EXPECT_EQ(report["stopped"], false);
  ASSERT_EQ(report["findings"].size(), 2u);
  EXPECT_EQ(report["findings"][1]["severity"], "slow");
  EXPECT_EQ(report["findings"][1]["subject"], "cores");
  EXPECT_EQ(report["findings"][1]["what"], "there are few");
  EXPECT_EQ(report["findings"][1]["fix"], "get more");
}

// The program, on whatever machine this is.
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

// A driver's library that has three GPUs, of which this program sees none.
TEST(DoctorTest, TheDriverIsAskedInAnyBuild) {
  const std::string folder = NewFolder("driver");
  std::filesystem::create_symlink(
      std::filesystem::absolute("tests/core/device/libfake_nvml.so"),
      folder + "/libnvidia-ml.so.1");
  ProgramOptions options;
  options.environment["LD_LIBRARY_PATH"] = folder;
  options.environment["CUDA_VISIBLE_DEVICES"] = "";
  const ProgramResult result = RunProgram(kDoctor, {}, options);
  EXPECT_EQ(result.exit_code, 1) << result.out;
  for (const char* each :
       {"the driver 580.65.06 runs CUDA up to 13.0", "GPU 0, H100 (compute",
        "GPU 2 is split", "GPUs 0-1: NVLink",
        "GPUs 0-2, 1-2: PCIe by way of a host bridge, without peer-to-peer",
        "a job of 3 ranks on one machine, on GPUs: it would not run"}) {
    EXPECT_THAT(result.out, HasSubstr(each));
  }
  EXPECT_THAT(result.out, AnyOf(HasSubstr("built without CUDA"),
                                HasSubstr("see 0 of the machine's 3 GPUs: "
                                          "CUDA_VISIBLE_DEVICES is \"\"")));
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
}  // namespace tandem::doctor_test
