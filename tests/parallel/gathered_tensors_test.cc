#include "parallel/gathered_tensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "core/testing/thread_ranks.h"

namespace tandem {
namespace {

// Rank r has r tensors more than none: of several dtypes and shapes.
NamedTensors TensorsOf(int rank) {
  NamedTensors tensors;
  for (int i = 0; i < rank; ++i) {
    tensors.emplace_back(absl::StrCat("rank ", rank, ".tensor", i),
                         at::full({i, 3}, rank, at::kDouble));
    tensors.emplace_back(absl::StrCat("rank ", rank, ".scalar", i),
                         at::full({}, i, at::kLong));
  }
  return tensors;
}

TEST(GatheredTensorsTest, RankZeroHasAllByRank) {
  const absl::Status status =
      RunThreadRanks(4, [](Communicator& world) -> absl::Status {
        const NamedTensors mine = TensorsOf(world.rank());
        TANDEM_ASSIGN_OR_RETURN(const NamedTensors all,
                                GatherOnRank0(mine, world));
        if (world.rank() != 0) {
          EXPECT_TRUE(all.empty());
          return absl::OkStatus();
        }
        NamedTensors expected;
        for (int rank = 0; rank < 4; ++rank) {
          for (const auto& each : TensorsOf(rank)) expected.push_back(each);
        }
        EXPECT_EQ(all.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(all[i].first, expected[i].first);
          EXPECT_TRUE(all[i].second.equal(expected[i].second));
          EXPECT_EQ(all[i].second.scalar_type(),
                    expected[i].second.scalar_type());
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(GatheredTensorsTest, OneRankKeepsItsOwn) {
  const absl::Status status =
      RunThreadRanks(1, [](Communicator& world) -> absl::Status {
        const NamedTensors mine = {{"a", at::arange(6).view({2, 3}).t()}};
        TANDEM_ASSIGN_OR_RETURN(const NamedTensors all,
                                GatherOnRank0(mine, world));
        EXPECT_EQ(all.size(), 1u);
        EXPECT_TRUE(all[0].second.is_same(mine[0].second));
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(GatheredTensorsTest, StridesDoNotMatter) {
  const absl::Status status =
      RunThreadRanks(2, [](Communicator& world) -> absl::Status {
        const at::Tensor tensor = at::arange(6).view({2, 3}).t();
        TANDEM_ASSIGN_OR_RETURN(
            const NamedTensors all,
            GatherOnRank0({{absl::StrCat(world.rank()), tensor}}, world));
        if (world.rank() == 0) {
          EXPECT_TRUE(all.at(1).second.equal(tensor));
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace tandem
