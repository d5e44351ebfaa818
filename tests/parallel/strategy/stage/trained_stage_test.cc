#include "parallel/strategy/stage/trained_stage.h"

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/instrument/fault_point.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::trained_stage_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// "w" [3, 5] and "b" [7], all ones, and a copy "head.w" of "w".
NamedTensors Parameters() {
  NamedTensors parameters;
  parameters.emplace_back("w", at::ones({3, 5}, TestDevice()).requires_grad_());
  parameters.emplace_back("b", at::ones({7}, TestDevice()).requires_grad_());
  parameters.emplace_back("head.w",
                          at::ones({3, 5}, TestDevice()).requires_grad_());
  return parameters;
}

const std::map<std::string, std::string>& Copies() {
  static const auto* const copies = new std::map<std::string, std::string>{
      {"head.w", "w"}, {"another stage's", "w"}};
  return *copies;
}

TrainedStageOptions Options(double momentum = 0.9) {
  TrainedStageOptions options;
  SgdOptions sgd;
  sgd.momentum = momentum;
  options.update.optimizer = sgd;
  return options;
}

std::unique_ptr<TrainedStage> Make(const NamedTensors& parameters,
                                   const TrainedStageOptions& options) {
  auto stage = TrainedStage::Create(parameters, {}, Copies(), options, nullptr);
  EXPECT_TRUE(stage.ok()) << stage.status();
  return *std::move(stage);
}

// One action that gives every parameter `value`, the last of its step.
absl::Status Backward(TrainedStage* stage, const NamedTensors& parameters,
                      double value) {
  const Action action = {ActionKind::kBackward, 0, 0};
  TANDEM_RETURN_IF_ERROR(stage->Prepare());
  StageGradients* const gradients = stage->gradients();
  if (gradients != nullptr) {
    TANDEM_RETURN_IF_ERROR(gradients->Before(action, /*last=*/true));
    TANDEM_RETURN_IF_ERROR(gradients->BeforeWeights(action));
  }
  for (const auto& each : parameters) each.second.mul(value).sum().backward();
  if (gradients == nullptr) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(gradients->After(action, /*last=*/true));
  return gradients->Finish();
}

void ExpectAll(const at::Tensor& tensor, double value) {
  EXPECT_TRUE(tensor.allclose(at::full_like(tensor, value), 1e-6, 1e-7))
      << tensor << " is not " << value;
}

TEST(TrainedStageTest, CopiesOfTiedWeightsStandApart) {
  const auto stage = Make(Parameters(), Options());
  EXPECT_THAT(NamesIn(stage->parameters().own()),
              UnorderedElementsAre("w", "b"));
  EXPECT_THAT(NamesIn(stage->parameters().all()),
              UnorderedElementsAre("w", "b", "head.w"));
  // The norm of a model goes by the parameters' order in it.
  std::set<int64_t> positions;
  for (const FlatBuffer* buffer : stage->parameters().all()) {
    for (const FlatSlot& slot : buffer->slots())
      positions.insert(slot.position);
  }
  EXPECT_THAT(positions, ElementsAre(0, 1, 2));
}

TEST(TrainedStageTest, StepsItsParameters) {
  const NamedTensors parameters = Parameters();
  const auto stage = Make(parameters, Options());
  ASSERT_TRUE(Backward(stage.get(), parameters, 2).ok());
  ASSERT_TRUE(stage->update().Step(0.1, std::nullopt).ok());
  for (const auto& each : parameters) ExpectAll(each.second, 0.8);
  ASSERT_TRUE(Backward(stage.get(), parameters, 1).ok());
  ASSERT_TRUE(stage->update().Step(0.1, std::nullopt).ok());
  // Momentum 0.9 * 2 + 1.
  for (const auto& each : parameters) ExpectAll(each.second, 0.8 - 0.28);
}

TEST(TrainedStageTest, ANewStepHasNoGradient) {
  const NamedTensors parameters = Parameters();
  const auto stage = Make(parameters, Options());
  ASSERT_TRUE(Backward(stage.get(), parameters, 2).ok());
  ASSERT_TRUE(stage->Prepare().ok());
  for (const auto& each : parameters) {
    EXPECT_FALSE(each.second.grad().defined()) << each.first;
  }
  // Nor an update then.
  ASSERT_TRUE(stage->update().Step(0.1, std::nullopt).ok());
  for (const auto& each : parameters) ExpectAll(each.second, 1);
}

TEST(TrainedStageTest, ClipsByTheNormThatItIsGivenAndByValue) {
  const NamedTensors parameters = Parameters();
  TrainedStageOptions options = Options(/*momentum=*/0);
  options.update.clip_norm = 1;
  options.update.clip_value = 3;
  const auto stage = Make(parameters, options);
  ASSERT_TRUE(Backward(stage.get(), parameters, 8).ok());
  stage->update().ClipValues();
  for (const auto& each : parameters) ExpectAll(each.second.grad(), 3);
  // The whole model's, of which this stage is a part.
  ASSERT_TRUE(
      stage->update().Step(/*learning_rate=*/1, GradientNorms{30, 0}).ok());
  for (const auto& each : parameters) ExpectAll(each.second, 1 - 3.0 / 30);
  // A norm below the bound changes nothing.
  ASSERT_TRUE(Backward(stage.get(), parameters, 0.5).ok());
  ASSERT_TRUE(
      stage->update().Step(/*learning_rate=*/1, GradientNorms{0.5, 0}).ok());
  for (const auto& each : parameters) ExpectAll(each.second, 0.9 - 0.5);
}

TEST(TrainedStageTest, ACopyIsInTheGroupOfItsFirstMember) {
  const NamedTensors parameters = Parameters();
  TrainedStageOptions options = Options(/*momentum=*/0);
  SgdOptions decaying;
  decaying.momentum = 0;
  decaying.weight_decay = 0.5;
  options.update.further_optimizers = {decaying};
  options.update.optimizer_group = [](const std::string& name) -> int64_t {
    EXPECT_NE(name, "head.w");
    return name == "w" ? 1 : 0;
  };
  const auto stage = Make(parameters, options);
  ASSERT_TRUE(Backward(stage.get(), parameters, 1).ok());
  ASSERT_TRUE(stage->update().Step(0.1, std::nullopt).ok());
  ExpectAll(parameters[0].second, 1 - 0.15);
  ExpectAll(parameters[1].second, 1 - 0.1);
  ExpectAll(parameters[2].second, 1 - 0.15);
}

TEST(TrainedStageTest, StateIsThatOfAGroupsFirstMember) {
  const NamedTensors parameters = Parameters();
  const auto stage = Make(parameters, Options());
  ASSERT_TRUE(Backward(stage.get(), parameters, 2).ok());
  ASSERT_TRUE(stage->update().Step(0.1, std::nullopt).ok());
  const NamedTensors state = stage->OptimizerState();
  EXPECT_THAT(NamesIn(state),
              UnorderedElementsAre("w.momentum_buffer", "b.momentum_buffer"));
  // The whole model's comes back: copies take the first member's, and what is
  // another stage's is left.
  const NamedTensors whole = {{"w.momentum_buffer", at::full({3, 5}, 5.0)},
                              {"b.momentum_buffer", at::full({7}, 6.0)},
                              {"other.momentum_buffer", at::zeros({2})}};
  const StoredTensors mine = stage->parameters().SelectState(whole);
  std::vector<std::string> names;
  for (const StoredTensor& each : mine) names.push_back(each.info.name);
  EXPECT_THAT(names,
              UnorderedElementsAre("w.momentum_buffer", "b.momentum_buffer",
                                   "head.w.momentum_buffer"));
  ASSERT_TRUE(stage->update().optimizer().CheckState(mine).ok());
  ASSERT_TRUE(stage->update().optimizer().LoadState(mine).ok());
  ASSERT_TRUE(Backward(stage.get(), parameters, 1).ok());
  ASSERT_TRUE(stage->update().Step(0.1, std::nullopt).ok());
  ExpectAll(parameters[0].second, 0.8 - 0.1 * (0.9 * 5 + 1));
  ExpectAll(parameters[2].second, 0.8 - 0.1 * (0.9 * 5 + 1));
  ExpectAll(parameters[1].second, 0.8 - 0.1 * (0.9 * 6 + 1));
  EXPECT_EQ(stage->update().optimizer().CheckState(whole).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TrainedStageTest, AStageWithoutParametersHasNothingToDo) {
  const auto stage = Make({}, Options());
  EXPECT_TRUE(stage->parameters().all().empty());
  EXPECT_TRUE(Backward(stage.get(), {}, 1).ok());
  stage->update().ClipValues();
  EXPECT_TRUE(stage->update().Step(0.1, GradientNorms{1, 1}).ok());
  EXPECT_TRUE(stage->ShareBuffers().ok());
  EXPECT_THAT(stage->OptimizerState(), IsEmpty());
}

TEST(TrainedStageTest, ReplicasAverageAndShareBuffers) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& replicas) -> absl::Status {
    const NamedTensors parameters = Parameters();
    const NamedTensors buffers = {
        {"running", at::full({4}, replicas.rank() + 1.0, TestDevice())}};
    TANDEM_ASSIGN_OR_RETURN(const auto stage,
                            TrainedStage::Create(parameters, buffers, Copies(),
                                                 Options(), &replicas));
    ExpectAll(buffers[0].second, 1);  // the first one's from the beginning
    buffers[0].second.fill_(replicas.rank() + 2.0);
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(
          Backward(stage.get(), parameters, 3 * replicas.rank()));
      for (const auto& each : parameters) ExpectAll(each.second.grad(), 3);
    }
    TANDEM_RETURN_IF_ERROR(stage->ShareBuffers());
    ExpectAll(buffers[0].second, 2);
    return absl::OkStatus();
  }));
}

TEST(TrainedStageTest, ReplicasBeginWithTheFirstOnesValues) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& replicas) -> absl::Status {
    NamedTensors parameters = Parameters();
    for (auto& each : parameters) {
      each.second.detach().fill_(replicas.rank() + 1.0);
    }
    const at::Tensor frozen =
        at::full({2}, replicas.rank() + 1.0, TestDevice());
    parameters.emplace_back("frozen", frozen);
    const at::Tensor buffer = frozen.clone();
    TrainedStageOptions options = Options();
    options.ddp.broadcast_buffers = false;
    TANDEM_ASSIGN_OR_RETURN(
        const auto stage,
        TrainedStage::Create(parameters, {{"running", buffer}}, Copies(),
                             options, &replicas));
    for (const auto& each : parameters) ExpectAll(each.second, 1);
    ExpectAll(buffer, 1);
    buffer.fill_(replicas.rank() + 2.0);
    TANDEM_RETURN_IF_ERROR(stage->ShareBuffers());
    ExpectAll(buffer, replicas.rank() + 2.0);
    return absl::OkStatus();
  }));
}

TEST(TrainedStageTest, WhatIsNotReducedIsEachReplicasOwn) {
  const absl::Status status =
      RunDeviceRanks(2, [](Communicator& replicas) -> absl::Status {
        const NamedTensors parameters = Parameters();
        TrainedStageOptions options = Options(/*momentum=*/0);
        options.traits["b"].reduce_axes.clear();
        TANDEM_ASSIGN_OR_RETURN(
            const auto stage,
            TrainedStage::Create(parameters, {}, Copies(), options, &replicas));
        const double mine = 2.0 * replicas.rank() + 1;  // 1 and 3
        TANDEM_RETURN_IF_ERROR(Backward(stage.get(), parameters, mine));
        ExpectAll(parameters[0].second.grad(), 2);
        ExpectAll(parameters[1].second.grad(), mine);
        ExpectAll(parameters[2].second.grad(), 2);
        TANDEM_RETURN_IF_ERROR(stage->update().Step(0.1, std::nullopt));
        ExpectAll(parameters[0].second, 0.8);
        ExpectAll(parameters[1].second, 1 - 0.1 * mine);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

// Gradients of an order weigh their share of the whole batch already.
TEST(TrainedStageTest, AnOrderSumsInsteadOfAveraging) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& replicas) -> absl::Status {
    const NamedTensors parameters = Parameters();
    TrainedStageOptions options = Options();
    GradientOrder order;
    order.groups = 2;
    order.microbatches = 1;
    options.order = order;
    TANDEM_ASSIGN_OR_RETURN(
        const auto stage,
        TrainedStage::Create(parameters, {}, Copies(), options, &replicas));
    TANDEM_RETURN_IF_ERROR(
        Backward(stage.get(), parameters, 3 + replicas.rank()));
    for (const auto& each : parameters) ExpectAll(each.second.grad(), 7);
    return absl::OkStatus();
  }));
}

TEST(TrainedStageTest, AHookReplacesTheAllReduce) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& replicas) -> absl::Status {
    const NamedTensors parameters = Parameters();
    TrainedStageOptions options = Options();
    int calls = 0;
    options.hook = [&calls](const GradBucket& bucket,
                            Communicator&) -> absl::StatusOr<FinishReduction> {
      ++calls;
      return FinishReduction([bucket] {
        bucket.buffer.fill_(17);
        return absl::OkStatus();
      });
    };
    TANDEM_ASSIGN_OR_RETURN(
        const auto stage,
        TrainedStage::Create(parameters, {}, Copies(), options, &replicas));
    TANDEM_RETURN_IF_ERROR(Backward(stage.get(), parameters, 1));
    EXPECT_EQ(calls, 2);  // the copies have a bucket of their own
    for (const auto& each : parameters) ExpectAll(each.second.grad(), 17);
    return absl::OkStatus();
  }));
}

TEST(TrainedStageTest, AReplacedParameterIsNamed) {
  const NamedTensors parameters = Parameters();
  const auto stage = Make(parameters, Options());
  ASSERT_TRUE(Backward(stage.get(), parameters, 1).ok());
  parameters[1].second.set_data(at::ones({7}));
  const absl::Status status = stage->update().Step(0.1, std::nullopt);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "b"));
}

TEST(TrainedStageTest, RefusesAnOptimizerGroupThatThereIsNot) {
  TrainedStageOptions options = Options();
  options.update.optimizer_group = [](const std::string&) -> int64_t {
    return 1;
  };
  EXPECT_EQ(TrainedStage::Create(Parameters(), {}, {}, options, nullptr)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TrainedStageTest, ThereIsAFaultPointBeforeTheOptimizer) {
  const auto stage = Make(Parameters(), Options());
  ArmFaults(*ParseFaults("point=before_optimizer,action=fail"));
  const absl::Status status = stage->update().Step(0.1, std::nullopt);
  ArmFaults({});
  EXPECT_THAT(status, Says("before_optimizer"));
}

}  // namespace
}  // namespace tandem::trained_stage_test
