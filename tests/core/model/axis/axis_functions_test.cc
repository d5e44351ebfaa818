// Differentiable collectives in closed form: forward, backward, and backward of
// backward, of numbers that are summed without rounding.

#include "core/model/axis/axis_functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::axis_functions_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Group = std::shared_ptr<ThreadAxisGroup>;
using Function =
    std::function<at::Tensor(const at::Tensor& x, const AxisGroupPtr& group)>;

constexpr char kWhat[] = "x";

// Small whole numbers that differ by rank and place.
at::Tensor Numbers(const std::vector<int64_t>& sizes, int64_t rank,
                   at::ScalarType dtype = at::kFloat) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return ((at::arange(count) * 7 + rank * 3) % 11 - 5).view(sizes).to(dtype);
}

std::vector<int64_t> With(std::vector<int64_t> sizes, int64_t dim,
                          int64_t size) {
  sizes[static_cast<size_t>(dim)] = size;
  return sizes;
}

int64_t PartSize(int64_t size, int64_t degree) {
  return (size + degree - 1) / degree;
}

// With zeros behind it.
at::Tensor Padded(const at::Tensor& x, int64_t dim, int64_t size) {
  return at::cat({x, at::zeros(With(x.sizes().vec(), dim, size - x.size(dim)),
                               x.options())},
                 dim);
}

at::Tensor Part(const at::Tensor& x, int64_t dim, int64_t degree,
                int64_t rank) {
  const int64_t part = PartSize(x.size(dim), degree);
  return Padded(x, dim, part * degree).narrow(dim, rank * part, part);
}

// All ranks' numbers.
std::vector<at::Tensor> All(const std::vector<int64_t>& sizes, int64_t degree,
                            at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  for (int64_t rank = 0; rank < degree; ++rank) {
    all.push_back(Numbers(sizes, rank, dtype));
  }
  return all;
}

at::Tensor Sum(const std::vector<at::Tensor>& all) {
  at::Tensor sum = at::zeros_like(all[0]);
  for (const at::Tensor& each : all) sum += each;
  return sum;
}

at::Tensor Joined(const std::vector<at::Tensor>& all, int64_t dim,
                  int64_t size) {
  return at::cat(all, dim).narrow(dim, 0, size);
}

// What forward gives for all ranks' x, and backward for all ranks' dy.
struct Expected {
  at::Tensor y, dx;
};

absl::Status Check(const Group& group, const Function& function,
                   const std::vector<at::Tensor>& xs,
                   const std::vector<at::Tensor>& dys, const Expected& right) {
  const auto rank = static_cast<size_t>(group->index());
  const at::Tensor x = xs[rank].clone().requires_grad_();
  const at::Tensor y = function(x, group);
  EXPECT_TRUE(y.equal(right.y)) << y << " for " << right.y;
  EXPECT_EQ(y.scalar_type(), x.scalar_type());
  y.backward(dys[rank]);
  EXPECT_TRUE(x.grad().equal(right.dx)) << x.grad() << " for " << right.dx;
  EXPECT_TRUE(x.equal(xs[rank])) << "x has been written to";
  return absl::OkStatus();
}

struct Case {
  std::vector<int64_t> sizes;  // of the whole
  int64_t dim;
};

// Sizes that degrees divide and do not, none and one among them.
const Case kCases[] = {{{4}, 0},       {{0}, 0},        {{1}, 0},
                       {{7}, 0},       {{2, 12, 3}, 1}, {{2, 7, 3}, 1},
                       {{3, 5, 2}, 2}, {{1, 13, 5}, 1}, {{0, 5}, 1}};

class AxisFunctions : public testing::TestWithParam<at::ScalarType> {
 protected:
  using Body =
      std::function<absl::Status(const Group& group, const Case& each)>;

  static void ForAll(const Body& body) {
    for (const int64_t degree : {1, 2, 3, 4}) {
      for (const Case& each : kCases) {
        SCOPED_TRACE(testing::Message() << "degree " << degree << ", sizes "
                                        << testing::PrintToString(each.sizes));
        ExpectOk(RunAxisRanks(
            degree, [&](const Group& group) { return body(group, each); }));
      }
    }
  }

  static std::vector<at::Tensor> AllOf(const std::vector<int64_t>& sizes,
                                       const Group& group) {
    return All(sizes, group->degree(), GetParam());
  }

  // Each rank's part of such a whole.
  static std::vector<int64_t> PartSizes(const Case& each, const Group& group) {
    return With(
        each.sizes, each.dim,
        PartSize(each.sizes[static_cast<size_t>(each.dim)], group->degree()));
  }

  static std::vector<at::Tensor> Repeated(const at::Tensor& x,
                                          const Group& group) {
    return std::vector<at::Tensor>(static_cast<size_t>(group->degree()), x);
  }
};

TEST_P(AxisFunctions, CopyToAxisSumsGradients) {
  ForAll([](const Group& group, const Case& each) {
    const at::Tensor x = Numbers(each.sizes, 1, GetParam());
    const auto dys = AllOf(each.sizes, group);
    return Check(group,
                 [](const at::Tensor& x, const AxisGroupPtr& group) {
                   return CopyToAxis(x, group, kWhat);
                 },
                 Repeated(x, group), dys, {x, Sum(dys)});
  });
}

TEST_P(AxisFunctions, ReduceFromAxisSums) {
  ForAll([](const Group& group, const Case& each) {
    const auto xs = AllOf(each.sizes, group);
    const at::Tensor dy = Numbers(each.sizes, 5, GetParam());
    return Check(group,
                 [](const at::Tensor& x, const AxisGroupPtr& group) {
                   return ReduceFromAxis(x, group, kWhat);
                 },
                 xs, Repeated(dy, group), {Sum(xs), dy});
  });
}

TEST_P(AxisFunctions, ScatterToAxisCutsAndGathersGradients) {
  ForAll([](const Group& group, const Case& each) {
    const at::Tensor x = Numbers(each.sizes, 1, GetParam());
    const auto dys = AllOf(PartSizes(each, group), group);
    return Check(
        group,
        [dim = each.dim](const at::Tensor& x, const AxisGroupPtr& group) {
          return ScatterToAxis(x, dim, group, kWhat);
        },
        Repeated(x, group), dys,
        {Part(x, each.dim, group->degree(), group->index()),
         Joined(dys, each.dim, x.size(each.dim))});
  });
}

TEST_P(AxisFunctions, GatherFromAxisJoinsAndCutsTheGradient) {
  ForAll([](const Group& group, const Case& each) {
    const auto xs = AllOf(PartSizes(each, group), group);
    const int64_t size = each.sizes[static_cast<size_t>(each.dim)];
    const at::Tensor dy = Numbers(each.sizes, 2, GetParam());
    return Check(group,
                 [&](const at::Tensor& x, const AxisGroupPtr& group) {
                   return GatherFromAxis(x, each.dim, group, kWhat, size);
                 },
                 xs, Repeated(dy, group),
                 {Joined(xs, each.dim, size),
                  Part(dy, each.dim, group->degree(), group->index())});
  });
}

TEST_P(AxisFunctions, AllGatherAlongJoinsAndSumsGradients) {
  ForAll([](const Group& group, const Case& each) {
    const auto xs = AllOf(PartSizes(each, group), group);
    const int64_t size = each.sizes[static_cast<size_t>(each.dim)];
    const auto dys = AllOf(each.sizes, group);
    return Check(group,
                 [&](const at::Tensor& x, const AxisGroupPtr& group) {
                   return AllGatherAlong(x, each.dim, group, kWhat, size);
                 },
                 xs, dys,
                 {Joined(xs, each.dim, size),
                  Part(Sum(dys), each.dim, group->degree(), group->index())});
  });
}

TEST_P(AxisFunctions, ReduceScatterAlongSumsAndJoinsGradients) {
  ForAll([](const Group& group, const Case& each) {
    const auto xs = AllOf(each.sizes, group);
    const auto dys = AllOf(PartSizes(each, group), group);
    return Check(
        group,
        [dim = each.dim](const at::Tensor& x, const AxisGroupPtr& group) {
          return ReduceScatterAlong(x, dim, group, kWhat);
        },
        xs, dys,
        {Part(Sum(xs), each.dim, group->degree(), group->index()),
         Joined(dys, each.dim, xs[0].size(each.dim))});
  });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AxisFunctions,
                         testing::Values(at::kFloat, at::kBFloat16,
                                         at::kDouble));

// The sum of all ranks' losses as a function of one number: f(x) = sum over
// ranks r of (r + 1) x^3 by f and g, whose derivatives are known.
TEST(AxisFunctionsTwice, AreDifferentiableTwice) {
  ExpectOk(RunAxisRanks(3, [](const Group& group) {
    const at::Tensor x = at::arange(1, 5).to(at::kDouble).requires_grad_();
    const at::Tensor mine = CopyToAxis(x, group, kWhat);
    const at::Tensor y = ReduceFromAxis(
        mine.pow(3) * static_cast<double>(group->index() + 1), group, kWhat);
    const auto first = torch::autograd::grad(
        {y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    EXPECT_TRUE(first[0].equal(6 * 3 * x.square()));
    const auto second = torch::autograd::grad({first[0].sum()}, {x});
    EXPECT_TRUE(second[0].equal(6 * 6 * x));
    return absl::OkStatus();
  }));
}

TEST(AxisFunctionsTwice, GatheredPartsAreDifferentiableTwice) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const double factor = static_cast<double>(group->index() + 1);
    const at::Tensor x =
        Numbers({2, 3}, group->index(), at::kDouble).clone().requires_grad_();
    const at::Tensor whole = AllGatherAlong(x, 1, group, kWhat, 5);
    const at::Tensor y =
        ReduceScatterAlong(whole.pow(3) * factor, 1, group, kWhat);
    const auto first = torch::autograd::grad(
        {y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    at::Tensor mask = at::zeros_like(x) + 1;
    if (group->index() == 1) mask.select(1, 2).zero_();  // cut off
    EXPECT_TRUE(first[0].equal(3 * 3 * x.square() * mask));
    const auto second = torch::autograd::grad({first[0].sum()}, {x});
    EXPECT_TRUE(second[0].equal(3 * 6 * x * mask));
    return absl::OkStatus();
  }));
}

TEST(AxisFunctionsCost, OneRankPaysNothing) {
  ExpectOk(RunAxisRanks(1, [](const Group& group) {
    const at::Tensor x = at::randn({2, 3}).requires_grad_();
    for (const at::Tensor& y :
         {CopyToAxis(x, group, kWhat), ReduceFromAxis(x, group, kWhat),
          ScatterToAxis(x, 1, group, kWhat), GatherFromAxis(x, 1, group, kWhat),
          AllGatherAlong(x, 1, group, kWhat),
          ReduceScatterAlong(x, 1, group, kWhat)}) {
      EXPECT_TRUE(y.is_same(x));
    }
    EXPECT_THAT(group->TakeCalls(), IsEmpty());
    return absl::OkStatus();
  }));
}

TEST(AxisFunctionsCost, WhatTakesNoGradientHasNoNode) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const at::Tensor x = at::randn({2, 2});
    EXPECT_TRUE(CopyToAxis(x, group, kWhat).is_same(x));
    EXPECT_FALSE(AllGatherAlong(x, 1, group, kWhat).requires_grad());
    EXPECT_THAT(group->TakeCalls(), ElementsAre("all-gather x"));
    return absl::OkStatus();
  }));
}

// What nobody else has is summed where it lies.
TEST(AxisFunctionsCost, ASumTakesThePlaceOfWhatNobodyElseHas) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    at::Tensor x = Numbers({5}, group->index()) + 0;
    const void* const place = x.const_data_ptr();
    const at::Tensor sum = ReduceFromAxis(std::move(x), group, kWhat);
    EXPECT_EQ(sum.const_data_ptr(), place);
    const at::Tensor kept = Numbers({5}, group->index()) + 0;
    const at::Tensor view = kept.view({5, 1});
    EXPECT_NE(ReduceFromAxis(view, group, kWhat).const_data_ptr(),
              kept.const_data_ptr());
    EXPECT_TRUE(kept.equal(Numbers({5}, group->index())));
    return absl::OkStatus();
  }));
}

// A function that has saved its output for backward still finds it there.
TEST(AxisFunctionsCost, ASumLeavesAloneWhatIsKeptForBackward) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const at::Tensor x =
        Numbers({5}, group->index(), at::kDouble).clone().requires_grad_();
    ReduceFromAxis(x.exp(), group, kWhat).sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().exp()));
    return absl::OkStatus();
  }));
}

TEST(GatheredInputTest, IsGatheredOnceForAllWhoAsk) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const at::Tensor part =
        Numbers({1, 2}, group->index()).clone().requires_grad_();
    const at::Tensor x = AllGatherAlong(part, 1, group, kWhat, 3);
    const GatheredInput first(x), second(x), third(x);
    group->TakeCalls();
    for (int backward = 0; backward < 2; ++backward) {
      for (const GatheredInput& each : {first, second, third}) {
        EXPECT_TRUE(each);
        EXPECT_TRUE(each.Gather().equal(x));
      }
      EXPECT_THAT(group->TakeCalls(), ElementsAre("all-gather x"));
    }
    return absl::OkStatus();
  }));
}

TEST(GatheredInputTest, IsEmptyOfAllElse) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const at::Tensor part = at::randn({2, 2}).requires_grad_();
    EXPECT_FALSE(GatheredInput(part));
    EXPECT_FALSE(GatheredInput(part * 2));
    EXPECT_FALSE(GatheredInput(GatherFromAxis(part, 1, group, kWhat)));
    EXPECT_FALSE(GatheredInput(AllGatherAlong(part, 1, group, kWhat) + 1));
    EXPECT_FALSE(GatheredInput(AllGatherAlong(part.detach(), 1, group, kWhat)));
    return absl::OkStatus();
  }));
}

TEST(AxisFunctionsErrors, PartsThatDoNotMakeUpTheWholeAreRefused) {
  EXPECT_THAT(
      RunAxisRanks(2,
                   [](const Group& group) {
                     GatherFromAxis(at::randn({3, 2}), 1, group, kWhat, 5);
                     return absl::OkStatus();
                   }),
      Says("x: 2 parts of 2 along tensor do not make up 5"));
  EXPECT_THAT(RunAxisRanks(2,
                           [](const Group& group) {
                             ScatterToAxis(at::randn({3}), 1, group, kWhat);
                             return absl::OkStatus();
                           }),
              Says("x: dimension 1 of a tensor [3] is to be divided along "
                   "tensor, which it has not"));
}

}  // namespace
}  // namespace tandem::axis_functions_test
