#include "tools/bench/case/case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "tools/bench/case/workload.h"

namespace tandem::case_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;

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

TEST(Setting, IsReadAsItIsWritten) {
  const Setting setting = {"zb_v", 2, 16, "time"};
  EXPECT_EQ(ToString(setting), "zb_v 2 16 time");
  EXPECT_EQ(*ParseSetting(ToString(setting)), setting);
  for (const char* wrong : {"", "1f1b 1 4", "1f1b 0 4 time", "1f1b 1 4 luck"}) {
    EXPECT_FALSE(ParseSetting(wrong).ok()) << wrong;
  }
}

TEST(Setting, SaysWhatIsUnusual) {
  Setting setting = {"1f1b", 1, 4, "time", 2};
  EXPECT_EQ(ToString(setting), "1f1b 1 4 time 2");
  setting.reproducible = true;
  setting.recipe = "find_unused";
  EXPECT_EQ(ToString(setting), "1f1b 1 4 time 2 reproducible find_unused");
  EXPECT_EQ(*ParseSetting(ToString(setting)), setting);
  for (const char* recipe :
       {kFsdpRecipe, kTensorRecipe, kTensorSequenceRecipe}) {
    setting.recipe = recipe;
    EXPECT_EQ(*ParseSetting(ToString(setting)), setting);
    EXPECT_EQ(SharesLayers(recipe), recipe != std::string(kFsdpRecipe));
  }
  EXPECT_FALSE(ParseSetting("1f1b 1 4 time by_luck").ok());
  EXPECT_EQ(ToString(Setting()), "1f1b 1 1 uniform");
}

TEST(SettingChoices, AreAllThatTheSamplesAllow) {
  const std::vector<Setting> settings =
      SettingChoices("1f1b", {1, 2}, {2, 8}, 4);
  ASSERT_EQ(settings.size(), 4u);
  EXPECT_EQ(ToString(settings[1]), "1f1b 1 2 time");
  EXPECT_EQ(ToString(settings[2]), "1f1b 2 2 uniform");
  const std::vector<Setting> more = WithWeightsTogether(settings);
  ASSERT_EQ(more.size(), 8u);
  EXPECT_EQ(ToString(more[4]), "1f1b 1 2 uniform 2");
  EXPECT_EQ(ToString(WithRecipe(more, "flat")[4]), "1f1b 1 2 uniform 2 flat");
}

TEST(Workload, IsFoundByTheNameOfItsModel) {
  for (const char* name :
       {"mlp_small", "mlp_wide", "mlp_deep", "cnn", "resnet18", "gpt_tiny"}) {
    const auto workload = WorkloadNamed(name);
    ASSERT_TRUE(workload.ok()) << workload.status();
    EXPECT_EQ(workload->model, name);
    EXPECT_GT(workload->batch_size, 0);
    EXPECT_GT(workload->steps, 0);
    EXPECT_GT(workload->compared_steps, 0);
  }
  const absl::Status unknown = WorkloadNamed("vgg").status();
  EXPECT_THAT(unknown, StatusIs(absl::StatusCode::kNotFound,
                                "'vgg': choose one of cnn, "));
}

// 6 x (multiplications of a token's step), by hand.
TEST(Workload, OperationsFollowTheTokens) {
  const Workload tiny = *WorkloadNamed("gpt_tiny");
  EXPECT_NEAR(tiny.gflop,
              128e-9 * 6 * (4 * 12 * 128 * 128 + 128 * 256 + 4 * 2 * 64 * 128),
              1e-9);
  const Workload llama = *WorkloadNamed("llama_baby");
  EXPECT_NEAR(llama.gflop,
              256e-9 * 6 *
                  (6 * (3 * 384 * 384 + 3 * 384 * 1024) + 384 * 320 +
                   6 * 2 * 128 * 384),
              1e-6);
  const Workload gpt2 = *WorkloadNamed("gpt2");
  const double weights = 12. * 12 * 768 * 768 + 768. * 50257;
  EXPECT_NEAR(gpt2.gflop, 1024e-9 * 6 * (weights + 12. * 2 * 512 * 768), 1e-6);
  const Workload brief = WithTokens(gpt2, 256);
  EXPECT_EQ(brief.input_shape, (std::vector<int64_t>{256}));
  EXPECT_NEAR(brief.gflop, 256e-9 * 6 * (weights + 12. * 2 * 128 * 768), 1e-6);
}

TEST(Workload, MayBeTrainedWithSgd) {
  const Workload sgd = WithSgd(*WorkloadNamed("gpt_tiny"), 0.5, 3);
  EXPECT_EQ(sgd.model, "gpt_tiny");
  EXPECT_EQ(sgd.optimizer, "sgd");
  EXPECT_EQ(sgd.learning_rate, 0.5);
  EXPECT_EQ(sgd.compared_steps, 3);
}

TEST(TrainFlagsTest, OneEpochHasTheStepsOfAllRanks) {
  EXPECT_THAT(TrainFlags(*WorkloadNamed("resnet18"), 3, 7),
              ElementsAre("--nproc_per_node=3", "--model=resnet18",
                          "--dataset=synthetic", "--synthetic_shape=3,64,64",
                          "--synthetic_samples=672", "--batch_size=96",
                          "--optimizer=sgd", "--learning_rate=0.0001",
                          "--synthetic_classes=10"));
}

TEST(TrainFlagsTest, TokensHaveTheModelsVocabulary) {
  const auto flags = TrainFlags(*WorkloadNamed("gpt_tiny"), 2, 5);
  EXPECT_THAT(flags, Contains("--dataset=synthetic_tokens"));
  EXPECT_THAT(flags, Contains("--synthetic_shape=128"));
  EXPECT_THAT(flags, Contains("--synthetic_samples=80"));
  EXPECT_THAT(flags, Not(Contains(StartsWith("--synthetic_classes"))));
}

}  // namespace
}  // namespace tandem::case_test
