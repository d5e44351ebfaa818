#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer_rule.h"
#include "parallel/sharding/optimizer_sharding.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// One buffer of so many elements, in slots of 17, and what is left.
FlatBuffers BuffersOf(int64_t elements) {
  NamedTensors parameters;
  for (int64_t i = 0; i < elements; i += 17) {
    parameters.emplace_back(absl::StrCat("p", i),
                            at::randn({std::min<int64_t>(17, elements - i)})
                                .to(TestDevice())
                                .requires_grad_(true));
  }
  return MakeFlatBuffers(parameters);
}

TEST(OptimizerShareTest, SpansFollowEachOtherOnBoundaries) {
  for (const int64_t elements : {1, 15, 17, 96, 1000}) {
    const FlatBuffers buffers = BuffersOf(elements);
    const FlatBuffer& buffer = *buffers[0];
    for (const int ranks : {1, 2, 3, 7, 64}) {
      int64_t end = 0;
      int64_t least = buffer.values().numel(), most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ElementSpan span = ShareSpan(buffer, {rank, ranks});
        EXPECT_EQ(span.begin, end);
        EXPECT_EQ(span.begin * 4 % 64, 0);
        end = span.end;
        least = std::min(least, span.length());
        most = std::max(most, span.length());
      }
      EXPECT_EQ(end, buffer.values().numel()) << elements << " on " << ranks;
      EXPECT_LE(most - least, 16) << elements << " on " << ranks;
    }
  }
}

// One buffer of matrices of 1 to so many rows.
FlatBuffers MatricesUpTo(int64_t rows) {
  NamedTensors parameters;
  for (int64_t i = 1; i <= rows; ++i) {
    parameters.emplace_back(
        absl::StrCat("p", i),
        at::randn({i, 9}).to(TestDevice()).requires_grad_(true));
  }
  return MakeFlatBuffers(parameters);
}

// An optimizer of whole matrices (Muon) has it so.
TEST(OptimizerShareTest, SpansOfWholeParametersBeginNearEvenOnes) {
  for (const int64_t rows : {1, 2, 9, 30}) {
    const FlatBuffers buffers = MatricesUpTo(rows);
    FlatBuffer& buffer = *buffers[0];
    std::set<int64_t> boundaries = {buffer.values().numel()};
    int64_t largest = 0;
    for (const FlatSlot& slot : buffer.slots()) {
      boundaries.insert(slot.offset);
      largest = std::max(largest, slot.end - slot.offset);
    }
    for (const int ranks : {1, 2, 3, 7, 64}) {
      std::vector<ElementSpan> even;
      const FlatBuffers others = MatricesUpTo(rows);
      for (int rank = 0; rank < ranks; ++rank) {
        even.push_back(ShareSpan(*others[0], {rank, ranks}));
      }
      buffer.ShareWholeParameters();
      int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ElementSpan span = ShareSpan(buffer, {rank, ranks});
        EXPECT_EQ(span.begin, end);
        EXPECT_GE(span.end, span.begin);
        EXPECT_EQ(boundaries.count(span.begin), 1u);
        EXPECT_LE(2 * std::abs(span.begin - even[rank].begin), largest);
        end = span.end;
      }
      EXPECT_EQ(end, buffer.values().numel()) << rows << " on " << ranks;
    }
  }
}

// Shares of one buffer, each stepped by itself: the bits of one optimizer.
void ExpectSharesToStepAsOne(const OptimizerOptions& options,
                             const std::function<FlatBuffers()>& make) {
  for (const int ranks : {2, 3, 7}) {
    const FlatBuffers whole = make();
    const auto copy_of = [&] {
      FlatBuffers copy = make();
      copy[0]->values().copy_(whole[0]->values());
      return copy;
    };
    std::vector<FlatBuffers> shares;
    for (int rank = 0; rank < ranks; ++rank) shares.push_back(copy_of());
    const auto optimizer = *MakeOptimizer(options, whole);
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    for (int rank = 0; rank < ranks; ++rank) {
      optimizers.push_back(
          *MakeOptimizer(options, shares[rank], [&](const FlatBuffer&) {
            return OptimizerShare{rank, ranks};
          }));
    }
    for (int step = 0; step < 3; ++step) {
      const at::Tensor gradients = at::randn_like(whole[0]->grads());
      const auto step_with = [&](const FlatBuffers& buffers, Optimizer& one) {
        buffers[0]->grads().copy_(gradients);
        // One has none in the second step, and so fewer steps than others.
        for (size_t i = 0; i < buffers[0]->slots().size(); ++i) {
          buffers[0]->set_has_gradient(i, step != 1 || i != 4);
        }
        return one.Step(1e-2);
      };
      const int64_t stepped = step_with(whole, *optimizer);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(step_with(shares[rank], *optimizers[rank]), stepped);
        const ElementSpan span = ShareSpan(*shares[rank][0], {rank, ranks});
        const auto part = [&](const FlatBuffers& buffers) {
          return buffers[0]->values().narrow(0, span.begin, span.length());
        };
        EXPECT_TRUE(part(shares[rank]).equal(part(whole)))
            << "step " << step << ", rank " << rank << " of " << ranks;
        EXPECT_TRUE(optimizers[rank]->State().empty());
      }
    }
  }
}

TEST(OptimizerShareTest, SharesTogetherStepAsOneOptimizer) {
  ExpectSharesToStepAsOne(AdamWOptions(), [] { return BuffersOf(203); });
  // Matrices of which each is one rank's.
  ExpectSharesToStepAsOne(MuonOptions(), [] { return MatricesUpTo(12); });
}

// Every rank steps its share: each has all of them then, and the first one the
// state of all.
absl::Status ExchangeShares(Communicator& world, int64_t elements) {
  const FlatBuffers buffers = BuffersOf(elements);
  FlatBuffer& buffer = *buffers[0];
  buffer.values().fill_(world.rank());
  EXPECT_TRUE(GatherValues(buffers, world, 1).ok());
  const ElementSpan mine = ShareSpan(buffer, ShareIn(world, buffer));
  const at::Tensor state = buffer.AddPartialState(mine.begin, mine.end);
  state.fill_(world.rank());
  const auto gathered = GatherOnFirst(buffer, state, world);
  EXPECT_TRUE(gathered.ok()) << gathered.status();
  EXPECT_EQ(gathered->defined(), world.rank() == 0);
  for (int rank = 0; rank < world.size(); ++rank) {
    const ElementSpan span = ShareSpan(buffer, {rank, world.size()});
    if (span.length() == 0) continue;
    const auto all_are = [&](const at::Tensor& flat) {
      return flat.narrow(0, span.begin, span.length())
          .eq(rank)
          .all()
          .item<bool>();
    };
    EXPECT_TRUE(all_are(buffer.values()));
    EXPECT_TRUE(world.rank() != 0 || all_are(*gathered));
  }
  return absl::OkStatus();
}

TEST(ShareExchangeTest, ValuesOfAllRanksAndStateOnTheFirst) {
  for (const int ranks : {2, 3, 7}) {
    ExpectOk(RunDeviceRanks(ranks, [&](Communicator& world) -> absl::Status {
      // Some shares are empty; then all are equal.
      TANDEM_RETURN_IF_ERROR(ExchangeShares(world, 70));
      return ExchangeShares(world, 357);
    }));
  }
}

TEST(OptimizerShareDeathTest, ABufferWithSharedStateKeepsItsOrder) {
  const FlatBuffers buffers = BuffersOf(34);
  buffers[0]->AddPartialState(0, 16);
  EXPECT_DEATH(buffers[0]->Reorder({1, 0}), "state of a part");
}

ShardingChoice Choose(Sharding asked, const OptimizerWork& work, int ranks,
                      const std::string& backend,
                      const std::string& excluded_by = "") {
  ShardingChoice choice;
  CommunicatorOptions options;
  options.backend = backend;
  ExpectOk(RunThreadRanks(
      ranks,
      [&](Communicator& world) -> absl::Status {
        const ShardingChoice rank_choice =
            ChooseSharding(asked, work, &world, excluded_by);
        if (world.rank() == 0) choice = rank_choice;
        return absl::OkStatus();
      },
      options));
  return choice;
}

TEST(OptimizerShardingTest, SharesWhereItIsFasterAndSaysWhyNot) {
  constexpr auto kAuto = Sharding::kAuto;
  constexpr auto kOn = Sharding::kOptimizer;
  const OptimizerWork large = {kLeastShardedParameters, 2};
  EXPECT_FALSE(ChooseSharding(kOn, large, nullptr, "").shards);
  EXPECT_THAT(Choose(kOn, large, 1, "shm").reason, HasSubstr("one replica"));
  EXPECT_TRUE(Choose(kAuto, large, 2, "shm").shards);
  EXPECT_THAT(Choose(kAuto, {999999, 2}, 2, "shm").reason,
              HasSubstr("999999 parameters; sharing pays from 1000000 on"));
  EXPECT_THAT(Choose(kAuto, {kLeastShardedParameters, 1}, 2, "shm").reason,
              HasSubstr("so little state"));
  EXPECT_THAT(Choose(kAuto, large, 2, "gloo").reason,
              HasSubstr("do not share memory"));
  EXPECT_EQ(Choose(kAuto, large, 2, "shm", "averaging").reason, "averaging");
  EXPECT_TRUE(Choose(kOn, {1, 0}, 2, "gloo").shards);
  EXPECT_FALSE(Choose(Sharding::kOff, large, 2, "shm").shards);
}

TEST(OptimizerShardingTest, StateIsCountedByOptimizer) {
  SgdOptions sgd;
  EXPECT_EQ(StateNumbers(sgd), 0);
  sgd.momentum = 0.9;
  EXPECT_EQ(StateNumbers(sgd), 1);
  EXPECT_EQ(StateNumbers(AdamWOptions()), 2);
  EXPECT_EQ(StateNumbers(MuonOptions()), 1);
  EXPECT_EQ(MostStateNumbers({MuonOptions(), AdamWOptions(), sgd}), 2);
  AdamOptions adam;
  adam.amsgrad = true;
  EXPECT_EQ(StateNumbers(adam), 3);
}

}  // namespace
}  // namespace tandem
