// What ranks that share memory say when something goes wrong.

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "tests/core/shm/ranks.h"

namespace tandem::errors_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(ShmErrorsTest, RanksThatDisagreeAreToldWhoDoesWhat) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors tensors = {at::zeros({b.getRank() == 0 ? 10 : 2})};
    const absl::Status status = CatchTorch([&] {
      if (b.getRank() == 0) {
        b.allreduce(tensors)->wait();
      } else {
        b.broadcast(tensors)->wait();
      }
    });
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("ranks disagree"),
                      HasSubstr("all-reduce of 40 bytes of Float (sum)"),
                      HasSubstr("broadcast of 8 bytes of Float, root 0")));
  });
}

// What lies in memory would be sent.
TEST(ShmErrorsTest, ViewsThatAreYetToBeFormedAreRefused) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors tensors = {at::zeros({3}, at::kComplexFloat).conj()};
    EXPECT_THAT(CatchTorch([&] { b.broadcast(tensors)->wait(); }),
                InvalidArgument("resolve_conj() and resolve_neg() come first"));
  });
}

// The product of such sizes is 0, a few bytes, or less than nothing.
TEST(ShmErrorsTest, TensorsThatNoMemoryHoldsAreRefused) {
  OnRanks(1, [](c10d::Backend& b) {
    for (const int64_t size : {int64_t{1} << 62, (int64_t{1} << 62) + 1,
                               int64_t{1} << 61, int64_t{-1}}) {
      EXPECT_THAT(ErrorOf([&] { b.allocateTensor(size, at::kFloat); }),
                  HasSubstr(absl::StrCat("shm cannot allocate ", size,
                                         " elements of Float")));
    }
    EXPECT_EQ(b.allocateTensor(0, at::kFloat).numel(), 0);
    EXPECT_EQ(b.allocateTensor(3, at::kFloat).numel(), 3);
  });
}

TEST(ShmErrorsTest, SeveralThreadsMayShutOneGroupDown) {
  OnRanks(2, [](c10d::Backend& b) {
    b.barrier()->wait();
    std::thread other([&] { b.shutdown(); });
    b.shutdown();
    other.join();
    EXPECT_THAT(ErrorOf([&] { b.barrier()->wait(); }), HasSubstr("left"));
  });
}

TEST(ShmErrorsTest, ATimeoutNamesTheRanksThatWereMissing) {
  for (const int64_t size : {3, 300007}) {
    std::atomic<int> gave_up{0};
    OnRanks(
        3,
        [&](c10d::Backend& b) {
          if (b.getRank() == 1) {
            EXPECT_TRUE(AwaitOtherRanks([&] { return gave_up == 2; }));
            return;
          }
          Tensors tensors = {at::zeros({size})};
          auto work = b.allreduce(tensors);
          const absl::Status status = CatchTorch([&] { work->wait(); });
          EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
          EXPECT_THAT(
              std::string(status.message()),
              ContainsRegex("timed out waiting for rank 1 .pid [0-9]+.$"));
          EXPECT_EQ(CatchTorch([&] { b.barrier()->wait(); }), status)
              << "the group is of no more use";
          ++gave_up;
        },
        2000);
  }
}

TEST(ShmErrorsTest, ARankThatLeavesIsToldAtOnce) {
  OnRanks(3, [](c10d::Backend& b) {
    b.barrier()->wait();
    if (b.getRank() == 2) return;
    EXPECT_THAT(ErrorOf([&] { b.barrier()->wait(); }),
                AnyOf(ContainsRegex("^rank 2 .pid [0-9]+. left the group$"),
                      HasSubstr("gave up: rank 2 (pid ")));
  });
}

TEST(ShmErrorsTest, ARankThatGivesUpTellsWhy) {
  OnRanks(3, [](c10d::Backend& b) {
    b.barrier()->wait();
    if (b.getRank() == 2) {
      static_cast<ShmBackend&>(b).Abort("the data ran out");
      EXPECT_THAT(ErrorOf([&] { b.barrier()->wait(); }),
                  HasSubstr("this rank gave up: the data ran out"));
      return;
    }
    Tensors in = {at::zeros({1})};
    EXPECT_THAT(ErrorOf([&] {
                  b.getRank() == 0 ? b.barrier()->wait()
                                   : b.recv(in, 2, 0)->wait();
                }),
                HasSubstr("rank 2 gave up: the data ran out"));
  });
}

TEST(ShmErrorsTest, WhatItDoesNotTakeIsRefusedAndBreaksNothing) {
  OnRanks(2, [](c10d::Backend& b) {
    const auto refused = [&](at::Tensor tensor, c10d::ReduceOp op) {
      Tensors tensors = {std::move(tensor)};
      return absl::IsInvalidArgument(
          CatchTorch([&] { b.allreduce(tensors, With(op)); }));
    };
    using Op = c10d::ReduceOp;
    EXPECT_TRUE(refused(at::zeros({2, 3}).t(), Op(Op::SUM)));
    EXPECT_TRUE(refused(at::zeros({2}), Op(Op::BAND)));
    EXPECT_TRUE(refused(at::zeros({2}, at::kInt), Op(Op::AVG)));
    EXPECT_TRUE(refused(at::zeros({2}, at::kComplexFloat), Op(Op::SUM)));
    Tensors two = {at::zeros({2}), at::zeros({2})};
    EXPECT_FALSE(CatchTorch([&] { b.allreduce(two); }).ok());
    Tensors one = {at::zeros({2})};
    EXPECT_FALSE(CatchTorch([&] { b.send(one, 2, 0); }).ok());
    b.barrier()->wait();
  });
}

TEST(ShmErrorsTest, AnAllToAllOfSizesThatDoNotFitIsToldAlikeByAll) {
  // In one round, and in several.
  for (const int64_t size : {3, 300007}) {
    OnRanks(3, [&](c10d::Backend& b) {
      Tensors inputs, outputs;
      for (int r = 0; r < 3; ++r) {
        inputs.push_back(at::zeros({size}));
        const bool expects_more = b.getRank() == 2 && r == 1;
        outputs.push_back(at::zeros({expects_more ? size + 2 : size}));
      }
      EXPECT_THAT(CatchTorch([&] { b.alltoall(outputs, inputs)->wait(); }),
                  InvalidArgument("rank 1 sends " + std::to_string(4 * size) +
                                  " bytes to rank 2, which expects " +
                                  std::to_string(4 * size + 8)));
    });
  }
}

TEST(ShmErrorsTest, AnAllToAllOfOtherDtypesIsRefused) {
  OnRanks(2, [](c10d::Backend& b) {
    const auto error = [&](at::ScalarType from, at::ScalarType to) {
      at::Tensor in = at::zeros({4}, from);
      at::Tensor out = at::zeros({4}, to);
      std::vector<int64_t> halves = {2, 2};
      return ErrorOf(
          [&] { b.all_to_all_single(out, in, halves, halves)->wait(); });
    };
    // On one rank: it breaks nothing.
    EXPECT_THAT(error(at::kInt, at::kFloat), HasSubstr("differ in dtype"));
    b.barrier()->wait();
    const at::ScalarType mine = b.getRank() == 0 ? at::kInt : at::kFloat;
    EXPECT_THAT(error(mine, mine), AllOf(HasSubstr("all-to-all of Int"),
                                         HasSubstr("all-to-all of Float")));
  });
}

TEST(ShmErrorsTest, OtherDtypesOfTheSameWidthAreNotTakenForEachOther) {
  OnRanks(2, [](c10d::Backend& b) {
    Tensors tensors = {
        at::zeros({3}, b.getRank() == 0 ? at::kInt : at::kFloat)};
    EXPECT_THAT(ErrorOf([&] { b.broadcast(tensors)->wait(); }),
                AllOf(HasSubstr("broadcast of 12 bytes of Int"),
                      HasSubstr("broadcast of 12 bytes of Float")));
  });
}

TEST(ShmErrorsTest, AMonitoredBarrierNamesAllThatDoNotCome) {
  std::atomic<bool> gave_up{false};
  OnRanks(
      3,
      [&](c10d::Backend& b) {
        b.monitoredBarrier({});
        if (b.getRank() > 0) {
          EXPECT_TRUE(AwaitOtherRanks([&] { return gave_up.load(); }));
          return;
        }
        const absl::Status status = CatchTorch([&] { b.monitoredBarrier({}); });
        EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
        EXPECT_THAT(
            std::string(status.message()),
            ContainsRegex("Ranks 1, 2 failed to pass monitoredBarrier in 2000 "
                          "ms: timed out waiting for ranks 1 .pid [0-9]+., 2"));
        gave_up = true;
      },
      2000);
}

TEST(ShmErrorsTest, SplitsThatDoNotFitAreRefusedAndBreakNothing) {
  OnRanks(2, [](c10d::Backend& b) {
    const auto error = [&](std::vector<int64_t> splits) {
      at::Tensor in = at::zeros({4, 2});
      at::Tensor out = at::zeros({4, 2});
      std::vector<int64_t> halves = {2, 2};
      return ErrorOf([&] { b.all_to_all_single(out, in, halves, splits); }) +
             "; " +
             ErrorOf([&] { b.all_to_all_single(out, in, splits, halves); });
    };
    const auto both = [](const std::string& text) {
      return ContainsRegex(text + ".*; .*" + text);
    };
    EXPECT_THAT(error({-1, 5}), both("a split cannot be negative"));
    EXPECT_THAT(error({3, 2}), both("exceed the tensor, which has 4 rows"));
    EXPECT_THAT(error({1, 2}), both("add up to the tensor, which has 4 rows"));
    EXPECT_THAT(error({int64_t{1} << 61, 4}), both("exceed the tensor"));
    EXPECT_THAT(error({4}), both("one split for each of 2 ranks"));
    b.barrier()->wait();
  });
}

}  // namespace
}  // namespace tandem::errors_test
