#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/pending_collective.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem::stage_reducer_test {
namespace {

// Parameters "a", "b", "c" of 16 floats, in buckets of one each, first in the
// order c, b, a.
class Stage {
 public:
  explicit Stage(Communicator& group, bool defers = false,
                 ReducerOptions options = {}) {
    for (const char name : std::string("abc")) {
      parameters_.emplace_back(
          std::string(1, name),
          at::ones({16}, TestDevice()).requires_grad_(true));
    }
    flat_ = MakeFlatBuffers(parameters_);
    options.buckets.limits = {64};
    gradients_ = std::make_unique<StageReducer>(
        std::make_unique<Reducer>(std::vector<FlatBuffer*>{flat_[0].get()},
                                  group, std::move(options)),
        defers);
    ExpectOk(gradients_->reducer().SetHook(
        [this](const GradBucket& bucket,
               Communicator& reducer_group) -> absl::StatusOr<FinishReduction> {
          absl::StrAppend(&log, "+", bucket.names[0]);
          TANDEM_ASSIGN_OR_RETURN(
              PendingCollective started,
              reducer_group.StartAllReduceSum(bucket.buffer,
                                              1.0 / reducer_group.size()));
          const auto pending =
              std::make_shared<PendingCollective>(std::move(started));
          return FinishReduction([this, bucket, pending] {
            absl::StrAppend(&log, "-", bucket.names[0]);
            return pending->Wait();
          });
        }));
  }

  StageReducer& gradients() { return *gradients_; }

  absl::Status Prepare() {
    log.clear();
    for (const auto& buffer : flat_) buffer->ZeroGrad();
    return gradients_->Prepare();
  }

  // A backward gives these parameters gradients, each `value`.
  void Give(const std::string& names, double value) {
    for (const char name : names) {
      parameters_[static_cast<size_t>(name - 'a')]
          .second.mul(value)
          .sum()
          .backward();
    }
  }

  // One action around it.
  absl::Status Act(int microbatch, const std::string& names, double value,
                   bool last) {
    const Action action = {ActionKind::kBackward, 0, microbatch};
    TANDEM_RETURN_IF_ERROR(gradients_->Before(action, last));
    Give(names, value);
    return gradients_->After(action, last);
  }

  // The gradient of a parameter, if it has one and all its elements are equal.
  std::string grad(char name) const {
    const at::Tensor& grad =
        parameters_[static_cast<size_t>(name - 'a')].second.grad();
    if (!grad.defined()) return "none";
    const double value = grad[0].item<double>();
    return grad.eq(value).all().item<bool>() ? absl::StrCat(value) : "mixed";
  }
  std::vector<std::string> grads() const {
    return {grad('a'), grad('b'), grad('c')};
  }

  std::string log;

 private:
  NamedTensors parameters_;
  FlatBuffers flat_;
  std::unique_ptr<StageReducer> gradients_;
};

using Strings = std::vector<std::string>;
using OnRank = std::function<absl::Status(Communicator&)>;

TEST(StageReducerTest, MicrobatchesGatherAndAreAveragedOnce) {
  for (const int ranks : {2, 3}) {
    ExpectOk(
        RunDeviceRanks(ranks, [ranks](Communicator& group) -> absl::Status {
          Stage stage(group);
          for (int step = 0; step < 3; ++step) {
            TANDEM_RETURN_IF_ERROR(stage.Prepare());
            for (int m = 0; m < 3; ++m) {
              EXPECT_EQ(stage.log, "") << "a bucket started before its time";
              TANDEM_RETURN_IF_ERROR(
                  stage.Act(m, "cba", (group.rank() + 1) * (m + 1), m == 2));
            }
            EXPECT_EQ(stage.log, "+c+b+a");
            TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
            EXPECT_EQ(stage.log, "+c+b+a-c-b-a");
            // 1 + 2 + 3 of each rank, times the mean of 1 ... ranks.
            const std::string mean = ranks == 2 ? "9" : "12";
            EXPECT_EQ(stage.grads(), Strings({mean, mean, mean}));
            EXPECT_EQ(stage.gradients().reducer().steps(), step + 1);
          }
          return absl::OkStatus();
        }));
  }
}

TEST(StageReducerTest, BucketsStartWithinTheLastActionInOneOrder) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) -> absl::Status {
    Stage stage(group);
    TANDEM_RETURN_IF_ERROR(stage.Prepare());
    TANDEM_RETURN_IF_ERROR(stage.Act(0, "abc", 1, false));
    const Action last = {ActionKind::kBackward, 0, 1};
    TANDEM_RETURN_IF_ERROR(stage.gradients().Before(last, true));
    stage.Give("c", 1);
    EXPECT_EQ(stage.log, "+c");
    // Ranks differ; buckets do not.
    stage.Give(group.rank() == 0 ? "ab" : "ba", 1);
    EXPECT_EQ(stage.log, "+c+b+a");
    TANDEM_RETURN_IF_ERROR(stage.gradients().After(last, true));
    TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
    EXPECT_EQ(stage.grads(), Strings({"2", "2", "2"}));
    // From then on they come in the order of rank 0.
    TANDEM_RETURN_IF_ERROR(stage.Prepare());
    TANDEM_RETURN_IF_ERROR(stage.Act(0, "bac", 1, true));
    TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
    EXPECT_EQ(stage.log, "+c+a+b-c-a-b");
    return absl::OkStatus();
  }));
}

// What an earlier microbatch alone has used is ready when the last has ended.
TEST(StageReducerTest, WhatTheLastMicrobatchDoesNotUseIsAveragedToo) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) -> absl::Status {
    Stage stage(group);
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(stage.Prepare());
      TANDEM_RETURN_IF_ERROR(stage.Act(0, "ab", 2, false));
      TANDEM_RETURN_IF_ERROR(stage.Act(1, "bc", 4 * group.rank(), true));
      TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
      EXPECT_EQ(stage.grads(), Strings({"2", "4", "2"})) << step;
    }
    return absl::OkStatus();
  }));
}

// Stages of one rank reduce independently: here each rank begins with another.
TEST(StageReducerTest, AStagesOrderIsItsOwn) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    const SubgroupOptions own = SubgroupForTestDevice(world);
    TANDEM_ASSIGN_OR_RETURN(const auto first,
                            world.Subgroup({0, 1}, "first", own));
    TANDEM_ASSIGN_OR_RETURN(const auto second,
                            world.Subgroup({0, 1}, "second", own));
    Stage stages[2] = {Stage(*first), Stage(*second)};
    for (int step = 0; step < 3; ++step) {
      absl::Status ends[2];
      for (Stage& stage : stages) TANDEM_RETURN_IF_ERROR(stage.Prepare());
      for (const int i : {0, 1}) {
        const auto which = static_cast<size_t>((world.rank() + i) % 2);
        ends[which] = stages[which].Act(0, "cba", 1 + world.rank(), true);
      }
      // On the threads of their devices, at the same time.
      std::thread other(
          [&] { ends[1].Update(stages[1].gradients().Finish()); });
      ends[0].Update(stages[0].gradients().Finish());
      other.join();
      for (const size_t i : {0, 1}) {
        EXPECT_TRUE(ends[i].ok()) << ends[i];
        EXPECT_EQ(stages[i].grads(), Strings({"1.5", "1.5", "1.5"}));
      }
    }
    return absl::OkStatus();
  }));
}

TEST(StageReducerTest, UnusedParametersAreFoundWhereThatIsAsked) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) -> absl::Status {
    ReducerOptions options;
    options.find_unused_parameters = true;
    Stage stage(group, /*defers=*/false, options);
    for (int step = 0; step < 3; ++step) {
      TANDEM_RETURN_IF_ERROR(stage.Prepare());
      // Rank 1 alone uses b, and nobody a.
      TANDEM_RETURN_IF_ERROR(stage.Act(0, "c", 2, false));
      TANDEM_RETURN_IF_ERROR(
          stage.Act(1, group.rank() == 1 ? "cb" : "c", 4, true));
      TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
      EXPECT_EQ(stage.grads(), Strings({"none", "2", "6"})) << step;
    }
    return absl::OkStatus();
  }));
}

TEST(StageReducerTest, AParameterThatNoMicrobatchUsesIsAnErrorOtherwise) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) -> absl::Status {
    Stage stage(group);
    TANDEM_RETURN_IF_ERROR(stage.Prepare());
    const std::string used = group.rank() == 0 ? "ca" : "cba";
    TANDEM_RETURN_IF_ERROR(stage.Act(0, used, 1, false));
    TANDEM_RETURN_IF_ERROR(stage.Act(1, used, 1, true));
    absl::Status end = stage.gradients().Finish();
    // What streams wait for the host learns here.
    if (end.ok()) end = group.Synchronize();
    EXPECT_FALSE(end.ok()) << group.rank();
    EXPECT_THAT(end, Says("b"));
    EXPECT_THAT(end, Says("find_unused_parameters"));
    return absl::OkStatus();
  }));
}

// What was left of weights' gradients comes at once, each when it is complete.
TEST(StageReducerTest, DeferredGradientsStartBucketsAsTheyCome) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& group) -> absl::Status {
    Stage stage(group, /*defers=*/true);
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(stage.Prepare());
      TANDEM_RETURN_IF_ERROR(stage.Act(0, "abc", 1, false));
      const Action last = {ActionKind::kBackward, 0, 1};
      TANDEM_RETURN_IF_ERROR(stage.gradients().Before(last, true));
      // A weight that a layer cannot leave for later, tied to one that can: its
      // gradient comes in two parts.
      stage.Give("c", 1);
      EXPECT_EQ(stage.log, "");
      TANDEM_RETURN_IF_ERROR(stage.gradients().BeforeWeights(last));
      EXPECT_EQ(stage.log, "");
      stage.Give("c", 1);
      EXPECT_EQ(stage.log, "+c");
      stage.Give("b", 1 + 2 * group.rank());
      EXPECT_EQ(stage.log, "+c+b");
      TANDEM_RETURN_IF_ERROR(stage.gradients().After(last, true));
      EXPECT_EQ(stage.log, "+c+b+a");
      TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
      EXPECT_EQ(stage.grads(), Strings({"1", "3", "3"}));
    }
    return absl::OkStatus();
  }));
}

// The end of a data set may leave a replica without samples.
TEST(StageReducerTest, AReplicaWithoutMicrobatchesAddsNothing) {
  for (const bool finds_unused : {false, true}) {
    for (const bool defers : {false, true}) {
      ExpectOk(RunDeviceRanks(3, [=](Communicator& group) -> absl::Status {
        ReducerOptions options;
        options.find_unused_parameters = finds_unused;
        Stage stage(group, defers, options);
        for (int step = 0; step < 3; ++step) {
          TANDEM_RETURN_IF_ERROR(stage.Prepare());
          const bool has_samples = step == 0 || group.rank() == 0;
          if (has_samples) {
            const Action action = {ActionKind::kBackward, 0, 0};
            TANDEM_RETURN_IF_ERROR(stage.gradients().Before(action, true));
            TANDEM_RETURN_IF_ERROR(stage.gradients().BeforeWeights(action));
            stage.Give(finds_unused ? "cb" : "cba", 3);
            TANDEM_RETURN_IF_ERROR(stage.gradients().After(action, true));
          }
          TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
          const std::string mean = step == 0 ? "3" : "1";
          EXPECT_EQ(stage.grads(),
                    Strings({finds_unused ? "none" : mean, mean, mean}));
        }
        return absl::OkStatus();
      }));
    }
  }
}

// What nobody uses in the first step is left alone for good, on a replica
// without samples, too, and by one that has its first samples later.
TEST(StageReducerTest, AReplicaWithoutMicrobatchesUsesNothing) {
  for (const bool is_static : {false, true}) {
    for (const int empty : {0, 1}) {
      ExpectOk(RunDeviceRanks(2, [=](Communicator& group) -> absl::Status {
        ReducerOptions options;
        options.static_graph = is_static;
        options.skip_all_reduce_unused_params = !is_static;
        Stage stage(group, /*defers=*/false, options);
        for (int step = 0; step < 3; ++step) {
          TANDEM_RETURN_IF_ERROR(stage.Prepare());
          if (group.rank() == 0 || step != empty) {
            // A static graph may use a parameter twice.
            TANDEM_RETURN_IF_ERROR(
                stage.Act(0, is_static ? "cbc" : "cb", 2, true));
          }
          TANDEM_RETURN_IF_ERROR(stage.gradients().Finish());
          const int share = step == empty ? 1 : 2;
          EXPECT_EQ(stage.grads(),
                    Strings({"none", absl::StrCat(share),
                             absl::StrCat(is_static ? 2 * share : share)}))
              << step;
        }
        return absl::OkStatus();
      }));
    }
  }
}

TEST(StageReducerTest, AHookIsGivenOnce) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& group) -> absl::Status {
    Stage stage(group);
    const auto none = [](const GradBucket&, Communicator&) {
      return absl::StatusOr<FinishReduction>([] { return absl::OkStatus(); });
    };
    EXPECT_EQ(stage.gradients().reducer().SetHook(none).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(stage.gradients().reducer().SetHook(nullptr).code(),
              absl::StatusCode::kInvalidArgument);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::stage_reducer_test
