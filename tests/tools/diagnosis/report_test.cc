#include "tools/diagnosis/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/diagnosis/findings.h"

namespace tandem::report_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace tandem::report_test
