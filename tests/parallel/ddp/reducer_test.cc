// The reducer driven by hand, as whoever computes gradients outside autograd
// does. tests/parallel/ddp_*_test.cc drive it through autograd.

#include "parallel/ddp/reducer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"

namespace tandem::reducer_test {
namespace {

// Parameters "a", "b", "c" of 16 floats, positions 0, 1, 2; buckets of one
// each, first in the order c, b, a. Or other parameters, of a letter each, and
// other buckets.
class Rank {
 public:
  explicit Rank(Communicator& group, ReducerOptions options = {},
                const std::string& names = "abc", int64_t bucket_bytes = 64) {
    for (const char name : names) {
      parameters_.emplace_back(
          std::string(1, name),
          at::ones({16}, TestDevice()).requires_grad_(true));
    }
    flat_ = MakeFlatBuffers(parameters_);
    options.buckets.limits = {bucket_bytes};
    reducer_ = std::make_unique<Reducer>(
        std::vector<FlatBuffer*>{flat_[0].get()}, group, std::move(options));
  }

  Reducer& reducer() { return *reducer_; }

  // Notes what starts and what ends, by name.
  void RecordBuckets() {
    ExpectOk(reducer_->SetHook(
        [this](const GradBucket& bucket,
               Communicator& group) -> absl::StatusOr<FinishReduction> {
          EXPECT_EQ(bucket.names.size(), 1u);
          absl::StrAppend(&log, "+", bucket.names[0],
                          bucket.is_last ? "!" : "");
          EXPECT_EQ(bucket.gradients[0].sizes(), bucket.parameters[0].sizes());
          const std::string name = bucket.names[0];
          return FinishReduction([this, bucket, name, &group] {
            absl::StrAppend(&log, "-", name);
            return group.AllReduceSum(bucket.buffer.div_(group.size()));
          });
        }));
  }

  // What computes gradients, in this order, each `value`.
  void Mark(const std::string& names, float value) {
    for (const char name : names) {
      FlatBuffer& flat = *flat_[0];
      for (size_t i = 0; i < flat.slots().size(); ++i) {
        const FlatSlot& slot = flat.slots()[i];
        if (slot.name[0] != name) continue;
        flat.set_has_gradient(i, true);
        at::Tensor grad = slot.parameter.grad();
        grad.fill_(value);
        reducer_->MarkReady(slot.position);
        break;
      }
    }
  }

  void ZeroGrad() { flat_[0]->ZeroGrad(); }
  const at::Tensor& grad(int position) {
    return parameters_[position].second.grad();
  }
  std::string Order() const {
    std::string order;
    for (const FlatSlot& slot : flat_[0]->slots()) order += slot.name;
    return order;
  }

  std::string log;

 private:
  NamedTensors parameters_;
  FlatBuffers flat_;
  std::unique_ptr<Reducer> reducer_;
};

// What streams wait for the host learns later.
absl::Status FinishAndWait(Reducer& reducer, Communicator& group) {
  TANDEM_RETURN_IF_ERROR(reducer.Finish());
  return group.Synchronize();
}

class ReducerTest : public DeviceTypeTest {};

TEST_P(ReducerTest, StartsBucketsInIndexOrderWhateverBecomesReadyFirst) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    Rank rank(group);
    rank.RecordBuckets();
    // c, b, a is expected; ranks differ.
    rank.Mark(group.rank() == 0 ? "ab" : "ba", 1 + group.rank());
    EXPECT_EQ(rank.log, "");
    rank.Mark("c", 1 + group.rank());
    EXPECT_EQ(rank.log, "+c+b+a!");
    TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
    EXPECT_EQ(rank.log, "+c+b+a!-c-b-a");
    for (int p : {0, 1, 2}) {
      EXPECT_TRUE(rank.grad(p).cpu().equal(at::full({16}, 1.5))) << p;
    }
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, RebuildsOnceInTheOrderOfRank0) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& group) {
    Rank rank(group);
    for (int step = 0; step < 3; ++step) {
      rank.ZeroGrad();
      TANDEM_RETURN_IF_ERROR(rank.reducer().PrepareForForward());
      EXPECT_EQ(rank.reducer().buckets().is_rebuilt(), step > 0);
      EXPECT_EQ(rank.Order(), step == 0 ? "cba" : "bca");
      rank.Mark(group.rank() == 0 ? (step == 0 ? "bca" : "abc") : "acb",
                step + group.rank());
      TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
      EXPECT_TRUE(rank.grad(1).cpu().allclose(at::full({16}, step + 1.)));
    }
    EXPECT_EQ(rank.reducer().steps(), 3);
    EXPECT_EQ(
        rank.reducer().buckets().Describe(0, /*for_hook=*/false).buffer.numel(),
        16);
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, OverlapsWithBackward) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    Rank rank(group);
    rank.Mark("c", 1);
    // Bucket c is under way: the rest of backward can take its time.
    rank.Mark("ba", 1);
    TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
    const ReducerTimes times = AwaitTimes(rank.reducer().moments());
    EXPECT_EQ(times.buckets.size(), 3u);
    EXPECT_LT(times.buckets[0].started, times.gradients_ready);
    EXPECT_LE(times.began, times.buckets[0].started);
    EXPECT_LE(times.buckets[2].ended, times.ended);
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, GathersOnlyWhileItDoesNotSynchronise) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    Rank rank(group);
    rank.reducer().set_synchronise(false);
    rank.Mark("ca", 1 + group.rank());
    TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
    EXPECT_TRUE(rank.grad(0).cpu().equal(at::full({16}, 1. + group.rank())));
    EXPECT_EQ(rank.reducer().steps(), 0);
    rank.reducer().set_synchronise(true);
    rank.Mark("cba", 3 + group.rank());
    TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
    EXPECT_TRUE(rank.grad(0).cpu().equal(at::full({16}, 3.5)));
    return absl::OkStatus();
  }));
}

// What is missing on one rank counts as zeros there; what all lack stays away.
TEST_P(ReducerTest, UnusedParametersTakeTheMeanOfThoseThatHaveAGradient) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    ReducerOptions options;
    options.find_unused_parameters = true;
    Rank rank(group, options);
    for (int step = 0; step < 2; ++step) {
      rank.ZeroGrad();
      TANDEM_RETURN_IF_ERROR(rank.reducer().PrepareForForward());
      rank.Mark(group.rank() == 0 ? "a" : "ac", 2);
      TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
      EXPECT_TRUE(rank.grad(0).cpu().equal(at::full({16}, 2.)));
      EXPECT_FALSE(rank.grad(1).defined());
      EXPECT_TRUE(rank.grad(2).cpu().equal(at::full({16}, 1.)));
    }
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, StaticGraphTravelsWithoutWhatNobodyUses) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    ReducerOptions options;
    options.static_graph = true;
    Rank rank(group, options);
    rank.RecordBuckets();
    for (int step = 0; step < 3; ++step) {
      rank.ZeroGrad();
      rank.log.clear();
      TANDEM_RETURN_IF_ERROR(rank.reducer().PrepareForForward());
      rank.Mark(group.rank() == 0 ? "aac" : "a", 2);
      TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
      EXPECT_TRUE(rank.grad(0).cpu().equal(at::full({16}, 2.)));
      EXPECT_FALSE(rank.grad(1).defined());
      EXPECT_TRUE(rank.grad(2).cpu().equal(at::full({16}, 1.)));
      EXPECT_EQ(rank.log, step == 0 ? "+c+b+a!-c-b-a" : "+a+c!-a-c");
    }
    rank.ZeroGrad();
    rank.Mark("a", 2);
    if (group.rank() == 1) rank.Mark("c", 2);
    const absl::Status changed = rank.reducer().Finish();
    EXPECT_FALSE(changed.ok());
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, SkipsWhatNobodyUsedFirst) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    ReducerOptions options;
    options.skip_all_reduce_unused_params = true;
    Rank rank(group, options);
    for (int step = 0; step < 2; ++step) {
      rank.ZeroGrad();
      TANDEM_RETURN_IF_ERROR(rank.reducer().PrepareForForward());
      rank.Mark("ca", 2);
      TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
      EXPECT_FALSE(rank.grad(1).defined());
    }
    EXPECT_EQ(rank.Order(), "cab");
    EXPECT_EQ(rank.reducer().moments().buckets.size(), 2u);
    rank.Mark("b", 1);
    EXPECT_THAT(
        rank.reducer().Finish(),
        InvalidArgument("parameter b was used on no rank in the first step"));
    return absl::OkStatus();
  }));
}

// What is left out from the first step on, and what a later one leaves unused.
TEST_P(ReducerTest, SkippingLeavesTheRestToBeFound) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    ReducerOptions options;
    options.find_unused_parameters = true;
    options.skip_all_reduce_unused_params = true;
    Rank rank(group, options);
    for (int step = 0; step < 3; ++step) {
      rank.ZeroGrad();
      TANDEM_RETURN_IF_ERROR(rank.reducer().PrepareForForward());
      rank.Mark(step == 1 ? "a" : "ca", 2);
      TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
      EXPECT_TRUE(rank.grad(0).defined()) << step;
      EXPECT_FALSE(rank.grad(1).defined()) << step;
      EXPECT_EQ(rank.grad(2).defined(), step != 1) << step;
    }
    EXPECT_EQ(rank.reducer().moments().buckets.size(), 2u);
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, DelayedBuffersGoWhenTheirParameterIsReady) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    const at::Tensor late = at::ones({4}, TestDevice()).requires_grad_(true);
    FlatBufferOptions layout;
    layout.traits = {std::nullopt, std::nullopt, std::nullopt,
                     ParameterTraits()};
    const FlatBuffers delayed = MakeFlatBuffers({{"", at::ones({1})},
                                                 {"", at::ones({1})},
                                                 {"", at::ones({1})},
                                                 {"d", late}},
                                                layout);
    ReducerOptions options;
    options.delayed = {delayed[0].get()};
    options.delayed_until = 1;  // b
    Rank rank(group, options);
    rank.RecordBuckets();
    late.mul(2. + group.rank()).sum().backward();
    rank.Mark("c", 1);
    EXPECT_EQ(rank.log, "+c");
    late.sum().backward();  // once more: it may
    rank.Mark("b", 1);
    EXPECT_EQ(rank.log, "+c+b+d");
    rank.Mark("a", 1);
    TANDEM_RETURN_IF_ERROR(rank.reducer().Finish());
    EXPECT_EQ(rank.log, "+c+b+d+a!-c-b-d-a");
    EXPECT_TRUE(late.grad().cpu().equal(at::full({4}, 3.5)));
    rank.Mark("cb", 1);
    late.sum().backward();  // too late
    EXPECT_THAT(
        rank.reducer().Finish(),
        InvalidArgument(
            "parameter d of delay_all_reduce_named_params got a gradient "
            "after"));
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, ErrorsNameTheParametersAndReachTheOthers) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    Rank rank(group);
    rank.Mark(group.rank() == 0 ? "cb" : "cba", 1);
    const absl::Status status = FinishAndWait(rank.reducer(), group);
    if (group.rank() == 0) {
      EXPECT_THAT(
          status,
          InvalidArgument("got no gradient in this backward: a (index 0). "));
    } else {
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status, Says("rank 0"));
      EXPECT_THAT(status, Says("no gradient"));
      // Rank 0 may give up while this one waits for any bucket.
      EXPECT_TRUE(std::regex_search(
          status.ToString(),
          std::regex("bucket (0 \\(c\\)|1 \\(b\\)|2 \\(a\\)) of step 1")))
          << status;
    }
    // And it stays so.
    rank.Mark("cba", 1);
    EXPECT_EQ(rank.reducer().Finish().code(), status.code());
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, ErrorsNameTheFirstOfManyParameters) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) {
    Rank rank(group, {}, "abcdefg", 7 * 64);
    rank.Mark(group.rank() == 0 ? "gfedcb" : "gfedcba", 1);
    const absl::Status status = FinishAndWait(rank.reducer(), group);
    if (group.rank() == 1) {
      EXPECT_THAT(status,
                  Says("bucket 0 (g, f, e, d, c and 2 more) of step 1"));
    }
    return absl::OkStatus();
  }));
}

TEST_P(ReducerTest, OneHookOnly) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& group) {
    Rank rank(group);
    rank.RecordBuckets();
    EXPECT_THAT(
        rank.reducer().SetHook(
            [](const GradBucket&, Communicator&) { return FinishReduction(); }),
        StatusIs(absl::StatusCode::kFailedPrecondition, "there can be one"));
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES(ReducerTest);

}  // namespace
}  // namespace tandem::reducer_test
