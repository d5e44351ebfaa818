// Ranks by host.

#include <gtest/gtest.h>

#include <vector>

#include "core/backend/hierarchical_backend.h"

namespace tandem::host_layout_test {
namespace {

TEST(HostLayoutTest, RanksAreGroupedByHostInTheirOrder) {
  const HostLayout layout({"x", "y", "x", "z", "y"});
  EXPECT_EQ(layout.ranks, (std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}}));
  EXPECT_EQ(layout.host, (std::vector<int>{0, 1, 0, 2, 1}));
  EXPECT_EQ(layout.local, (std::vector<int>{0, 0, 1, 0, 1}));
}

}  // namespace
}  // namespace tandem::host_layout_test
