// A loopback group: what one rank computes where all have the same.

#include "core/model/axis/loopback_axis_group.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"

namespace tandem::loopback_axis_group_test {
namespace {

constexpr char kWhat[] = "x";

// What ranks that have the same tensors come to, by threads.
TEST(LoopbackAxisGroupTest, IsTheFirstOfRanksThatHaveTheSame) {
  for (const int64_t degree : {1, 2, 7}) {
    const AxisGroupPtr alone = MakeLoopbackAxisGroup("tensor", degree);
    EXPECT_EQ(alone->axis(), "tensor");
    EXPECT_EQ(alone->index(), 0);
    EXPECT_EQ(alone->degree(), degree);
    const auto results = [degree](AxisGroup& group) {
      const at::Tensor x = at::arange(degree * 3, at::kFloat).view({degree, 3});
      const at::Tensor sum = x.clone();
      group.AllReduceSum(sum, kWhat);
      const at::Tensor all = at::empty({degree, degree, 3});
      group.AllGather(all, x, kWhat);
      const at::Tensor mine = at::empty({3});
      group.ReduceScatterSum(mine, x, kWhat);
      return std::vector<at::Tensor>{sum, all, mine};
    };
    const std::vector<at::Tensor> found = results(*alone);
    ExpectOk(RunAxisRanks(degree, [&](auto group) {
      const std::vector<at::Tensor> expected = results(*group);
      for (size_t i = 0; i < found.size() && group->index() == 0; ++i) {
        EXPECT_TRUE(at::equal(found[i], expected[i])) << degree << ", " << i;
      }
      return absl::OkStatus();
    }));
  }
}

}  // namespace
}  // namespace tandem::loopback_axis_group_test
