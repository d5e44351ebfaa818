#include "tools/bench/case/case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::case_test {
namespace {

using testing::ElementsAre;

TEST(Layout, CountsRanksAndDevices) {
  const Layout layout = {2, 3, 4};
  EXPECT_EQ(layout.ranks(), 6);
  EXPECT_EQ(layout.devices_of_replica(), 12);
  EXPECT_EQ(layout.OverRanks().ranks(), 24);
  EXPECT_EQ(layout.OverRanks().replicas, 2);
  EXPECT_EQ(layout.OverRanks().devices, 1);
}

std::vector<Case> Examples() {
  Case example;
  std::vector<Case> cases;
  for (const char* name : {"a/x", "a/y", "b/x"}) {
    example.name = name;
    example.workload.model = example.name.substr(0, 1);
    cases.push_back(example);
  }
  return cases;
}

std::vector<std::string> Names(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& each : cases) names.push_back(each.name);
  return names;
}

TEST(CasesNamed, TakesModelsForAllOfTheirCases) {
  EXPECT_EQ(CasesNamed(Examples(), {})->size(), 3u);
  EXPECT_THAT(Names(*CasesNamed(Examples(), {"a"})), ElementsAre("a/x", "a/y"));
  EXPECT_THAT(Names(*CasesNamed(Examples(), {"b", "a/y", "a/y"})),
              ElementsAre("a/y", "b/x"));
}

TEST(InDtypes, KeepsAModelsCasesOfADtypeTogether) {
  const auto cases = InDtypes(Examples(), {"fp32", "bf16"});
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_THAT(Names(*cases), ElementsAre("a/x", "a/y", "a/x:bf16", "a/y:bf16",
                                         "b/x", "b/x:bf16"));
  EXPECT_EQ((*cases)[2].workload.dtype, "bf16");
  EXPECT_EQ(ByModel(*cases).size(), 4u);
  EXPECT_EQ(std::string(InDtypes(Examples(), {"fp8"}).status().message()),
            "--dtypes: unknown 'fp8'; known: fp32, bf16");
}

TEST(CasesNamed, RefusesOthersAndSaysWhatIsKnown) {
  const auto said = [](const std::vector<Case>& all) {
    const absl::Status status = CasesNamed(all, {"a", "c"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(said(Examples()),
            "unknown case 'c': known are a/x, a/y, b/x, and the models alone");
  Case plain;
  plain.name = plain.workload.model = "a";
  EXPECT_EQ(said({plain}), "unknown case 'c': known are a");
}

TEST(ByModel, KeepsNeighboursTogether) {
  const auto models = ByModel(Examples());
  ASSERT_EQ(models.size(), 2u);
  EXPECT_THAT(Names(models[0]), ElementsAre("a/x", "a/y"));
  EXPECT_THAT(Names(models[1]), ElementsAre("b/x"));
  EXPECT_TRUE(ByModel({}).empty());
}

}  // namespace
}  // namespace tandem::case_test
