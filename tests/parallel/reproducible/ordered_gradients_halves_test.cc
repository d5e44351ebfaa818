// Where a parameter gets gradients from both parts of backward, their sum is
// the tree's all the same, whatever the schedule.

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/reproducible/ordered_gradients.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/schedules.h"

namespace tandem::ordered_gradients_halves_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr int kParameters = 4;
constexpr int64_t kSize = 5;

// "both" parts, "input" or "weights" alone, or each of them by turns.
constexpr const char* kNames[kParameters] = {"both", "input", "weights",
                                             "turns"};

bool InInput(int parameter, int microbatch) {
  if (parameter == 3) return microbatch % 3 != 0;
  return parameter != 2;
}

bool InWeights(int parameter, int microbatch) {
  if (parameter == 3) return microbatch % 3 != 2;
  return parameter != 1;
}

// The part of a microbatch of the whole batch; on the host.
at::Tensor PartOf(int microbatch, int parameter, bool weights) {
  return at::randn(
      {kSize}, GeneratorFor(5, absl::StrCat("part ", microbatch, " ", parameter,
                                            " ", weights)));
}

at::Tensor GradientOf(int m, int p) {
  at::Tensor sum;
  if (InInput(p, m)) sum = PartOf(m, p, false);
  if (!InWeights(p, m)) return sum;
  const at::Tensor part = PartOf(m, p, true);
  return sum.defined() ? sum.add(part) : part;
}

// By the definition: groups in order, then pairs of neighbours, level by level.
at::Tensor Expected(int microbatches, int groups, int parameter) {
  std::vector<at::Tensor> sums;
  const int size = microbatches / groups;
  for (int g = 0; g < groups; ++g) {
    at::Tensor sum = GradientOf(g * size, parameter);
    for (int m = g * size + 1; m < (g + 1) * size; ++m) {
      sum = sum.add(GradientOf(m, parameter));
    }
    sums.push_back(sum);
  }
  while (sums.size() > 1) {
    std::vector<at::Tensor> above;
    for (size_t i = 0; i < sums.size(); i += 2) {
      above.push_back(i + 1 < sums.size() ? sums[i].add(sums[i + 1]) : sums[i]);
    }
    sums = above;
  }
  return sums[0];
}

// A stage of `replicas`, each with the schedule's microbatches.
struct Cell {
  Schedule schedule;
  int stage = 0;
  int groups = 1;
  int replicas = 1;

  int all() const { return schedule.microbatches * replicas; }
  std::string ToString() const {
    return absl::StrCat(schedule.name, " ", schedule.devices(), " devices, ",
                        schedule.microbatches, " microbatches, stage ", stage,
                        ", ", groups, " groups, ", replicas, " replicas");
  }
};

// What the stage does, but for forwards.
std::vector<Action> BackwardsOf(const Cell& cell) {
  std::vector<Action> actions;
  for (const auto& device : cell.schedule.actions) {
    for (const Action& each : device) {
      const bool counts =
          each.stage == cell.stage && each.kind != ActionKind::kForward;
      if (counts) actions.push_back(each);
    }
  }
  return actions;
}

absl::Status RunAction(const Action& action, bool last, int microbatch,
                       const NamedTensors& parameters,
                       OrderedGradients* gradients) {
  TANDEM_RETURN_IF_ERROR(gradients->Before(action, last));
  std::vector<at::Tensor> left;
  for (int p = 0; p < kParameters; ++p) {
    const at::Tensor& parameter = parameters[static_cast<size_t>(p)].second;
    const auto give = [&](bool weights) {
      const at::Tensor part = PartOf(microbatch, p, weights).to(TestDevice());
      parameter.mul(part).sum().backward();
    };
    const bool whole = action.kind == ActionKind::kBackward;
    const bool input = whole || action.kind == ActionKind::kBackwardInput;
    const bool weights = whole || action.kind == ActionKind::kBackwardWeight;
    if (input && InInput(p, microbatch)) give(false);
    if (!InWeights(p, microbatch)) continue;
    if (weights) give(true);
    if (!weights) left.push_back(parameter);
  }
  gradients->AwaitWeights(left);
  return gradients->After(action, last);
}

absl::Status RunReplica(const Cell& cell, int replica, Communicator* replicas) {
  NamedTensors parameters;
  for (const char* name : kNames) {
    parameters.emplace_back(name,
                            at::zeros({kSize}, TestDevice()).requires_grad_());
  }
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  const int own = cell.schedule.microbatches;
  GradientOrder order = {cell.groups, own};
  order.splits = SplitsBackward(cell.schedule);
  order.descends =
      OrderOfGradients(cell.schedule) == GradientsCome::kDescending;
  OrderedGradients gradients(FlatBufferList(buffers), order, replicas);
  const std::vector<Action> actions = BackwardsOf(cell);
  for (int step = 0; step < 2; ++step) {  // nothing is left of the first
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    TANDEM_RETURN_IF_ERROR(gradients.Prepare());
    for (const Action& action : actions) {
      TANDEM_RETURN_IF_ERROR(RunAction(action, action == actions.back(),
                                       replica * own + action.microbatch,
                                       parameters, &gradients));
    }
    TANDEM_RETURN_IF_ERROR(gradients.Finish());
    for (int p = 0; p < kParameters; ++p) {
      const at::Tensor& grad = parameters[static_cast<size_t>(p)].second.grad();
      EXPECT_TRUE(grad.defined() &&
                  grad.cpu().equal(Expected(cell.all(), cell.groups, p)))
          << kNames[p] << ", replica " << replica << ", step " << step << ", "
          << cell.ToString();
    }
  }
  return absl::OkStatus();
}

void RunCell(const Cell& cell) {
  const absl::Status status =
      cell.replicas == 1
          ? RunReplica(cell, 0, nullptr)
          : RunDeviceRanks(cell.replicas, [&](Communicator& world) {
              return RunReplica(cell, world.rank(), &world);
            });
  EXPECT_TRUE(status.ok()) << status << ", " << cell.ToString();
}

// A device adds what the host adds, in more time: the outermost will do there.
std::vector<int> StagesOf(const Schedule& schedule) {
  if (!TestDevice().is_cpu()) return {0, schedule.stages - 1};
  std::vector<int> all(static_cast<size_t>(schedule.stages));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(OrderedGradientsHalvesTest, AreTheTreesSumInEverySchedule) {
  int cells = 0;
  for (const char* name : {"zb_h1", "zb_v"}) {
    for (const int devices : {2, 3, 4, 8}) {
      for (const int microbatches : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
        const int chunks = std::string(name) == "zb_v" ? 2 : 1;
        const Schedule schedule =
            *MakeSchedule(name, {devices, chunks, microbatches});
        for (int groups = 1; groups <= microbatches; ++groups) {
          if (microbatches % groups != 0) continue;
          for (const int stage : StagesOf(schedule)) {
            RunCell({schedule, stage, groups});
          }
          ++cells;
        }
      }
    }
  }
  std::cout << cells << " cells: schedule x devices x microbatches x groups\n";
  EXPECT_EQ(cells, 2 * 4 * (1 + 2 + 2 + 3 + 2 + 4 + 2 + 4 + 6 + 5));
}

TEST(OrderedGradientsHalvesTest, AreTheSumOfAllReplicas) {
  for (const int groups : {4, 8, 12, 24}) {
    for (const int replicas : {2, 4}) {
      if (groups % replicas != 0) continue;
      RunCell({*ZeroBubbleH1({3, 1, 24 / replicas}), 2, groups, replicas});
    }
  }
}

// Backward at once for some microbatches, in two parts for others; and from the
// last to the first.
TEST(OrderedGradientsHalvesTest, WholeOnesMayComeBetween) {
  for (const char* text :
       {"F0 F1 F2 F3 B0 I1 W1 B2 I3 W3", "F0 F1 F2 F3 I0 I1 I2 W0 W1 W2 B3"}) {
    for (const int groups : {1, 2, 4}) {
      RunCell({*ParseSchedule(text, text), 0, groups});
    }
  }
  const char* const down = "F0 F1 F2 I2 I1 W2 I0 W1 W0";
  RunCell({*ParseSchedule(down, down), 0, 3});
}

at::Tensor Part(double value) { return at::full({2}, value); }

// (microbatch, value) of all that are whole.
std::vector<std::pair<int, double>> Wholes(GradientHalves& halves) {
  std::vector<std::pair<int, double>> all;
  while (const auto whole = halves.Next()) {
    all.emplace_back(whole->microbatch, whole->gradient[1].item<double>());
  }
  return all;
}

TEST(GradientHalvesTest, WhatComesAtOnceGoesAtOnce) {
  GradientHalves halves;
  const at::Tensor part = Part(3);
  halves.Add(5, part, /*awaits=*/false);
  const auto whole = halves.Next();
  ASSERT_TRUE(whole.has_value());
  EXPECT_TRUE(whole->gradient.is_alias_of(part));  // no copy
  EXPECT_TRUE(halves.empty());
  EXPECT_FALSE(halves.Next().has_value());
}

TEST(GradientHalvesTest, TheFirstPartWaitsForTheSecond) {
  GradientHalves halves;
  at::Tensor place = Part(3);
  halves.Add(0, place, /*awaits=*/true);
  EXPECT_TRUE(Wholes(halves).empty());
  place.fill_(4);  // the next microbatch's, in the same place
  halves.Add(1, place, /*awaits=*/true);
  EXPECT_TRUE(Wholes(halves).empty());
  place.fill_(10);
  halves.Add(0, place, /*awaits=*/false);
  EXPECT_THAT(Wholes(halves), ElementsAre(Pair(0, 13)));
  place.fill_(20);
  halves.Add(1, place, /*awaits=*/false);
  EXPECT_THAT(Wholes(halves), ElementsAre(Pair(1, 24)));
  EXPECT_TRUE(halves.empty());
}

TEST(GradientHalvesTest, OrderIsThatOfTheFirstParts) {
  GradientHalves halves;
  at::Tensor place = Part(1);
  halves.Add(3, at::Tensor(), /*awaits=*/true);  // no first part
  halves.Add(2, place, /*awaits=*/false);
  place.fill_(0);
  EXPECT_TRUE(Wholes(halves).empty());
  halves.Add(3, Part(7), /*awaits=*/false);
  EXPECT_THAT(Wholes(halves), ElementsAre(Pair(3, 7), Pair(2, 1)));
}

}  // namespace
}  // namespace tandem::ordered_gradients_halves_test
