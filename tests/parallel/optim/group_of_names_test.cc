#include "parallel/optim/group_of_names.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem::group_of_names_test {
namespace {

TEST(GroupOfAnyTest, IsTheGreatestOfAllNames) {
  const auto group = [](const std::string& name) -> int64_t {
    return name == "head" ? 2 : name == "bias" ? 1 : 0;
  };
  const std::vector<std::string> tied = {"embedding", "head"};
  const std::map<std::string, std::vector<std::string>> names = {
      {"embedding", tied}, {"head", tied}};
  const OptimizerGroup of_any = GroupOfAny(group, names);
  EXPECT_EQ(of_any("embedding"), 2);
  EXPECT_EQ(of_any("head"), 2);
  EXPECT_EQ(of_any("bias"), 1);
  EXPECT_EQ(of_any("weight"), 0);
  EXPECT_FALSE(GroupOfAny(nullptr, names));
}

}  // namespace
}  // namespace tandem::group_of_names_test
