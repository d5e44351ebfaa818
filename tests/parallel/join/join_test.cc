// Join with users' classes: PyTorch's test_join.py, and what survivors are
// told.

#include "parallel/join/join.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/distributed_data_parallel.h"

namespace tandem::join_test {
namespace {

using testing::HasSubstr;

at::TensorOptions At(at::ScalarType dtype) {
  return at::TensorOptions(TestDevice()).dtype(dtype);
}

// test_join.py's AllReducer: each iteration has so many all-reduces of ones,
// whose sum tells how many ranks took part with data.
class AllReducer : public Joinable {
 public:
  AllReducer(Communicator& group, int count) : group_(group), count_(count) {}

  absl::Status Iterate(bool with_data = true) {
    for (int i = 0; i < count_; ++i) {
      at::Tensor one = at::full({1}, with_data ? 1 : 0, At(at::kLong));
      TANDEM_RETURN_IF_ERROR(group_.AllReduceSum(one));
      if (with_data) sum_ += one.item<int64_t>();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<JoinHook>> MakeJoinHook(
      const JoinOptions& /*options*/) override {
    std::unique_ptr<JoinHook> hook = std::make_unique<Hook>(*this);
    return hook;
  }
  Communicator& join_group() override { return group_; }

  int64_t sum() const { return sum_; }
  int64_t shadowed() const { return shadowed_; }
  const std::vector<bool>& last_told() const { return told_; }
  int last_joiners() const { return last_joiners_; }
  int post_hooks() const { return post_hooks_; }

 private:
  class Hook : public JoinHook {
   public:
    explicit Hook(AllReducer& owner) : owner_(owner) {}
    void BeginIteration(const std::vector<bool>& active) override {
      owner_.told_ = active;
    }
    absl::Status MainHook() override {
      ++owner_.shadowed_;
      return owner_.Iterate(false);
    }
    // How many say that they are last.
    absl::Status PostHook(bool is_last_joiner) override {
      ++owner_.post_hooks_;
      const at::Tensor last =
          at::full({1}, is_last_joiner ? 1 : 0, At(at::kInt));
      TANDEM_RETURN_IF_ERROR(owner_.group_.AllReduceSum(last));
      owner_.last_joiners_ = last.item<int>();
      return absl::OkStatus();
    }

   private:
    AllReducer& owner_;
  };

  Communicator& group_;
  const int count_;
  int64_t sum_ = 0, shadowed_ = 0;
  std::vector<bool> told_;
  int last_joiners_ = 0, post_hooks_ = 0;
};

using Numbers = std::vector<int>;  // of batches, by rank

int Most(const Numbers& batches) {
  return *std::max_element(batches.begin(), batches.end());
}

// Over the first `batches[rank]` iterations: who else had one.
int64_t ExpectedSum(const Numbers& batches, int rank) {
  int64_t sum = 0;
  for (int i = 0; i < batches[static_cast<size_t>(rank)]; ++i) {
    for (const int rank_batches : batches) sum += rank_batches > i ? 1 : 0;
  }
  return sum;
}

const std::vector<Numbers>& Deals() {
  static const auto* const deals = new std::vector<Numbers>{
      {3, 5}, {0, 4},    {4, 0},       {2, 2},
      {0, 0}, {1, 3, 2}, {5, 0, 0, 2}, {0, 1, 2, 3, 4, 5, 6},
  };
  return *deals;
}

TEST(JoinTest, EndedRanksShadowEveryJoinablesCollectives) {
  for (const Numbers& batches : Deals()) {
    for (const std::vector<int>& counts :
         {std::vector<int>{1}, std::vector<int>{3, 1, 2}}) {
      SCOPED_TRACE(absl::StrCat(batches.size(), " ranks, ", counts.size()));
      ExpectOk(RunDeviceRanks(
          static_cast<int>(batches.size()),
          [&](Communicator& world) -> absl::Status {
            const int mine = batches[static_cast<size_t>(world.rank())];
            std::vector<std::unique_ptr<AllReducer>> all;
            std::vector<Joinable*> joinables;
            for (const int count : counts) {
              all.push_back(std::make_unique<AllReducer>(world, count));
              joinables.push_back(all.back().get());
            }
            TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin(joinables));
            for (int i = 0; i < mine; ++i) {
              TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
              for (const auto& each : all) {
                TANDEM_RETURN_IF_ERROR(each->Iterate());
              }
            }
            TANDEM_RETURN_IF_ERROR(join.Finish());
            EXPECT_EQ(join.iterations(), mine);
            EXPECT_EQ(join.shadowed(), Most(batches) - mine);
            for (size_t i = 0; i < all.size(); ++i) {
              EXPECT_EQ(all[i]->sum(),
                        counts[i] * ExpectedSum(batches, world.rank()));
              EXPECT_EQ(all[i]->shadowed(), Most(batches) - mine);
              EXPECT_EQ(all[i]->post_hooks(), 1);
              EXPECT_EQ(
                  all[i]->last_joiners(),
                  std::count(batches.begin(), batches.end(), Most(batches)));
            }
            return world.Barrier();
          }));
    }
  }
}

TEST(JoinTest, HooksAreToldWhoHasABatch) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    AllReducer reducer(world, 1);
    TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({&reducer}));
    for (int i = 0; i < world.rank(); ++i) {
      TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
      EXPECT_EQ(reducer.last_told(), (std::vector<bool>{false, i == 0, true}));
      TANDEM_RETURN_IF_ERROR(reducer.Iterate());
    }
    return join.Finish();
  }));
}

// All have done as many iterations as the rank with the fewest, and the group
// is as good as before.
TEST(JoinTest, EarlyTerminationComesToAllRanksAtOnce) {
  for (const Numbers& batches : Deals()) {
    SCOPED_TRACE(batches.size());
    const int fewest = *std::min_element(batches.begin(), batches.end());
    ExpectOk(RunDeviceRanks(
        static_cast<int>(batches.size()),
        [&](Communicator& world) -> absl::Status {
          const int mine = batches[static_cast<size_t>(world.rank())];
          AllReducer reducer(world, 2);
          JoinOptions options;
          options.throw_on_early_termination = true;
          absl::Status ended;
          int64_t done = 0;
          {
            TANDEM_ASSIGN_OR_RETURN(Join join,
                                    Join::Begin({&reducer}, options));
            for (int i = 0; i < mine && ended.ok(); ++i) {
              ended = join.NotifyBatch();
              if (ended.ok()) TANDEM_RETURN_IF_ERROR(reducer.Iterate());
            }
            if (ended.ok()) ended = join.Finish();
            done = join.iterations();
          }
          EXPECT_EQ(done, fewest);
          EXPECT_EQ(IsEarlyTermination(ended), Most(batches) > fewest);
          if (Most(batches) > fewest) {
            EXPECT_THAT(ended, Says(mine == fewest
                                        ? absl::StrCat("Rank ", world.rank(),
                                                       " exhausted all inputs")
                                        : "Detected at least one rank that "
                                          "exhausted inputs."));
          } else {
            EXPECT_TRUE(ended.ok()) << ended;
          }
          return world.Barrier();
        }));
  }
}

TEST(JoinTest, SwitchedOffItSendsNothing) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    AllReducer reducer(world, 1);
    JoinOptions options;
    options.enable = false;
    TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({&reducer}, options));
    // Another number on each rank, which would be in vain otherwise.
    for (int i = 0; i < 3 + world.rank(); ++i) {
      TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
    }
    TANDEM_RETURN_IF_ERROR(join.Finish());
    EXPECT_EQ(reducer.post_hooks(), 0);
    return world.Barrier();
  }));
}

TEST(JoinErrorTest, NamesWhatIsWrong) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    EXPECT_THAT(Join::Begin({}).status(), Says("one joinable at least"));
    TANDEM_ASSIGN_OR_RETURN(const auto other, world.Subgroup({0, 1}, "others"));
    AllReducer first(world, 1), second(*other, 1);
    EXPECT_THAT(Join::Begin({&first, &second}).status(),
                Says("there are world and others"));
    TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({&first}));
    TANDEM_RETURN_IF_ERROR(join.Finish());
    EXPECT_THAT(join.NotifyBatch(), Says("has ended"));
    EXPECT_THAT(join.Finish(), Says("has ended"));
    return world.Barrier();
  }));
}

// test_ddp_uneven_input_exception: what goes wrong in an iteration is returned
// as it is; the others, one of whom shadows, are told at once.
TEST(JoinErrorTest, AnErrorInAnIterationEndsTheOthersInTime) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    AllReducer reducer(world, 1);
    const auto train = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({&reducer}));
      for (int i = 0; i < 4 * world.rank(); ++i) {
        TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
        if (world.rank() == 1 && i == 2) {
          return absl::DataLossError("the user's own error");
        }
        TANDEM_RETURN_IF_ERROR(reducer.Iterate());
      }
      return join.Finish();
    };
    const absl::Status ended = train();
    if (world.rank() == 1) {
      EXPECT_EQ(ended, absl::DataLossError("the user's own error"));
    } else {
      EXPECT_THAT(ended, Says("rank 1 left its Join before the end"));
    }
    return absl::OkStatus();
  }));
}

// What DistributedDataParallel cannot do in a Join, by name.

using torch::nn::Linear;

Linear NewLinear() {
  Linear linear(2, 2);
  linear->to(TestDevice());
  return linear;
}

at::Tensor Input() { return at::ones({1, 2}, TestDevice()); }

// What each rank is told, of two that have three batches and one.
std::vector<std::string> Said(
    const std::function<absl::Status(DistributedDataParallel<Linear>& ddp,
                                     Join& join, int rank)>& iterate) {
  std::vector<std::string> said(2);
  ExpectOk(RunDeviceRanks(2, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(NewLinear(), world));
    const auto train = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
      for (int i = 0; i < (world.rank() == 0 ? 3 : 1); ++i) {
        TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
        TANDEM_RETURN_IF_ERROR(iterate(*ddp, join, world.rank()));
      }
      return join.Finish();
    };
    said[static_cast<size_t>(world.rank())] = std::string(train().message());
    return absl::OkStatus();
  }));
  return said;
}

TEST(DdpJoinErrorTest, NamesWhatAnIterationMayNotDo) {
  EXPECT_THAT(Said([&](auto& ddp, Join&, int) -> absl::Status {
                TANDEM_RETURN_IF_ERROR(ddp.Forward(Input()).status());
                return ddp.Forward(Input()).status();
              })[0],
              HasSubstr("an iteration has one forward with gradients"));
  EXPECT_THAT(Said([&](auto& ddp, Join&, int) -> absl::Status {
                TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                                        ddp.Forward(Input()));
                const NoSyncGuard guard = ddp.no_sync();
                return ddp.Backward(y.sum());
              })[0],
              HasSubstr("no_sync goes around forward and backward"));
  for (const std::string& each :
       Said([&](auto&ddp, Join&, int rank) -> absl::Status {
         std::optional<NoSyncGuard> guard;
         if (rank == 0) guard.emplace(ddp.no_sync());
         return ddp.Forward(Input()).status();
       })) {
    EXPECT_THAT(each, HasSubstr("1 of the 2 ranks that have inputs average"));
  }
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(NewLinear(), world));
    TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
    EXPECT_THAT(Join::Begin({ddp.get()}).status(), Says("in a Join already"));
    TANDEM_RETURN_IF_ERROR(join.Finish());
    TANDEM_ASSIGN_OR_RETURN(auto other,
                            MakeDistributedDataParallel(NewLinear(), world));
    TANDEM_RETURN_IF_ERROR(other->register_comm_hook(AllReduceHook()));
    JoinOptions options;
    options.divide_by_initial_world_size = false;
    EXPECT_THAT(Join::Begin({other.get()}, options).status(),
                Says("has a communication hook, which divides for itself"));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::join_test
