#include "parallel/activation_checkpointing/checkpointed_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/statuses.h"

namespace tandem::checkpointed_groups_test {
namespace {

using Groups = std::vector<std::pair<int64_t, int64_t>>;

const std::vector<std::string>& Names() {
  static const auto* names = new std::vector<std::string>{
      "wte", "h.0", "h.1", "h.2", "ln", "h.3", "head"};
  return *names;
}

Groups Found(const SelectiveCheckpointing& selective,
             const std::vector<std::string>& names = Names()) {
  Groups groups;
  const auto found = CheckpointedGroups(names, selective);
  EXPECT_TRUE(found.ok()) << found.status();
  for (const LayerRange& each : *found) {
    groups.emplace_back(each.begin, each.end);
  }
  return groups;
}

TEST(CheckpointedGroupsTest, NoneUnlessAskedFor) {
  EXPECT_FALSE(SelectiveCheckpointing().is_on());
  EXPECT_EQ(Found({}), Groups());
}

TEST(CheckpointedGroupsTest, APatternMeansLayersByThemselves) {
  EXPECT_EQ(Found({"^h\\.", 0}), (Groups{{1, 2}, {2, 3}, {3, 4}, {5, 6}}));
  EXPECT_EQ(Found({"head|wte", 1}), (Groups{{0, 1}, {6, 7}}));
}

TEST(CheckpointedGroupsTest, EverySoManyNeighboursAreOne) {
  EXPECT_EQ(Found({"", 1}).size(), 7u);
  EXPECT_EQ(Found({"", 3}), (Groups{{0, 3}, {3, 6}, {6, 7}}));
  EXPECT_EQ(Found({"", 100}), (Groups{{0, 7}}));
  EXPECT_EQ(Found({"", 3}, {}), Groups());
}

TEST(CheckpointedGroupsTest, NeighboursAmongThoseThatAreMeant) {
  EXPECT_EQ(Found({"^h\\.", 2}), (Groups{{1, 3}, {3, 4}, {5, 6}}));
}

TEST(CheckpointedGroupsTest, WhatMeansNothingIsRefused) {
  EXPECT_THAT(CheckpointedGroups(Names(), {"h(", 0}).status(),
              Says("checkpoint_layers=h(: not a regular expression"));
  EXPECT_THAT(CheckpointedGroups(Names(), {"", -1}).status(),
              Says("checkpoint_every must be 0 or more, not -1"));
  EXPECT_THAT(CheckSomeLayerIsMeant(Names(), {"block", 2}),
              Says("checkpoint_layers=block matches no layer", "h.3, head"));
  EXPECT_TRUE(CheckSomeLayerIsMeant(Names(), {"", 2}).ok());
  EXPECT_TRUE(CheckSomeLayerIsMeant(Names(), {}).ok());
}

}  // namespace
}  // namespace tandem::checkpointed_groups_test
