#include "tools/bench/case/setting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::setting_test {
namespace {

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
  EXPECT_FALSE(ParseSetting("1f1b 1 4 time by_luck").ok());
  EXPECT_EQ(ToString(Setting()), "1f1b 1 1 uniform");
}

TEST(SettingsOf, AreAllThatTheSamplesAllow) {
  const std::vector<Setting> settings = SettingsOf("1f1b", {1, 2}, {2, 8}, 4);
  ASSERT_EQ(settings.size(), 4u);
  EXPECT_EQ(ToString(settings[1]), "1f1b 1 2 time");
  EXPECT_EQ(ToString(settings[2]), "1f1b 2 2 uniform");
  const std::vector<Setting> more = WithWeightsTogether(settings);
  ASSERT_EQ(more.size(), 8u);
  EXPECT_EQ(ToString(more[4]), "1f1b 1 2 uniform 2");
  EXPECT_EQ(ToString(WithRecipe(more, "flat")[4]), "1f1b 1 2 uniform 2 flat");
}

}  // namespace
}  // namespace tandem::setting_test
