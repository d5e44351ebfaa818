#include "parallel/reproducible/ordered_gradients.h"

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/reproducible/ordered_exchange.h"

namespace tandem::ordered_gradients_test {
namespace {

// The second parameter gets its gradients from backwards of weights alone where
// `splits`, the third one is used by some microbatches alone.
struct Job {
  int replicas = 1;
  int microbatches = 4;  // of all replicas
  int groups = 4;
  bool descends = false;
  bool splits = false;
  bool find_unused_parameters = true;
  int missing = 0;  // microbatches, at the end of the whole batch
};

constexpr int kParameters = 3;

bool IsThere(const Job& job, int microbatch) {
  return microbatch < job.microbatches - job.missing;
}

bool Uses(const Job& job, int microbatch, int parameter) {
  return IsThere(job, microbatch) && (parameter != 2 || microbatch % 3 == 1);
}

// The gradient of the whole batch's microbatch.
at::Tensor GradientOf(int microbatch, int parameter) {
  const std::vector<int64_t> sizes[kParameters] = {{7}, {5, 11}, {33}};
  return at::randn(sizes[parameter],
                   GeneratorFor(3, absl::StrCat("gradient ", microbatch, " ",
                                                parameter)))
      .to(TestDevice());
}

// By the definition: groups in order, then pairs of neighbours, level by level.
at::Tensor Expected(const Job& job, int parameter) {
  std::vector<at::Tensor> sums;
  const int size = job.microbatches / job.groups;
  for (int g = 0; g < job.groups; ++g) {
    at::Tensor sum;
    for (int m = g * size; m < (g + 1) * size; ++m) {
      if (!Uses(job, m, parameter)) continue;
      const at::Tensor gradient = GradientOf(m, parameter);
      sum = sum.defined() ? sum.add(gradient) : gradient;
    }
    if (!sum.defined()) sum = at::zeros_like(GradientOf(0, parameter));
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

// What a stage does: a backward of each microbatch, or two.
absl::Status RunStep(const Job& job, int replica,
                     const NamedTensors& parameters,
                     OrderedGradients* gradients) {
  const int own = job.microbatches / job.replicas;
  TANDEM_RETURN_IF_ERROR(gradients->Prepare());
  std::vector<Action> actions;
  for (int i = 0; i < own; ++i) {
    const int m = job.descends ? own - 1 - i : i;
    if (!job.splits) {
      actions.push_back({ActionKind::kBackward, 0, m});
      continue;
    }
    // Weights come a microbatch later.
    actions.push_back({ActionKind::kBackwardInput, 0, m});
    const int before = job.descends ? m + 1 : m - 1;
    if (i > 0) actions.push_back({ActionKind::kBackwardWeight, 0, before});
    if (i + 1 == own) actions.push_back({ActionKind::kBackwardWeight, 0, m});
  }
  while (!actions.empty() &&
         !IsThere(job, replica * own + actions.back().microbatch)) {
    actions.pop_back();
  }
  for (const Action& action : actions) {
    if (!IsThere(job, replica * own + action.microbatch)) continue;
    const bool last = action == actions.back();
    TANDEM_RETURN_IF_ERROR(gradients->Before(action, last));
    const int m = replica * own + action.microbatch;
    for (int p = 0; p < kParameters; ++p) {
      const bool by_weights = job.splits && p == 1;
      if (by_weights != (action.kind == ActionKind::kBackwardWeight)) continue;
      if (!Uses(job, m, p)) continue;
      const at::Tensor& parameter = parameters[static_cast<size_t>(p)].second;
      parameter.mul(GradientOf(m, p)).sum().backward();
    }
    if (action.kind == ActionKind::kBackwardInput && Uses(job, m, 1)) {
      gradients->AwaitWeights({parameters[1].second});
    }
    TANDEM_RETURN_IF_ERROR(gradients->After(action, last));
  }
  return gradients->Finish();
}

// Names of those that are not the tree's sums; empty: all are.
std::string WrongGradients(const Job& job, const NamedTensors& parameters) {
  std::string wrong;
  for (int p = 0; p < kParameters; ++p) {
    const auto& [name, parameter] = parameters[static_cast<size_t>(p)];
    const at::Tensor& grad = parameter.grad();
    bool is_used = false;
    for (int m = 0; m < job.microbatches; ++m) is_used |= Uses(job, m, p);
    const bool is_right =
        grad.defined() ? is_used && grad.equal(Expected(job, p)) : !is_used;
    if (!is_right) absl::StrAppend(&wrong, name, " ");
  }
  return wrong;
}

absl::Status RunReplica(const Job& job, int replica, Communicator* replicas) {
  NamedTensors parameters;
  for (int p = 0; p < kParameters; ++p) {
    const at::Tensor parameter = at::zeros_like(GradientOf(0, p));
    parameters.emplace_back(absl::StrCat("p", p), parameter.requires_grad_());
  }
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  OrderedGradients gradients(
      FlatBufferList(buffers),
      {job.groups, job.microbatches / job.replicas, job.descends,
       job.find_unused_parameters, job.splits},
      replicas);
  for (int step = 0; step < 2; ++step) {  // nothing is left of the first
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    TANDEM_RETURN_IF_ERROR(RunStep(job, replica, parameters, &gradients));
    const std::string wrong = WrongGradients(job, parameters);
    // The host learns here what has failed on streams; values mean nothing
    // then.
    if (replicas != nullptr) TANDEM_RETURN_IF_ERROR(replicas->Synchronize());
    EXPECT_EQ(wrong, "") << "on replica " << replica << " in step " << step;
  }
  return absl::OkStatus();
}

absl::Status RunJob(const Job& job) {
  if (job.replicas == 1) return RunReplica(job, 0, nullptr);
  return RunDeviceRanks(job.replicas, [&](Communicator& world) {
    return RunReplica(job, world.rank(), &world);
  });
}

class OrderedGradientsTest : public testing::TestWithParam<Job> {};

TEST_P(OrderedGradientsTest, AreTheTreesSumOnEveryReplica) {
  ExpectOk(RunJob(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, OrderedGradientsTest,
    testing::Values(Job{1, 1, 1}, Job{1, 2, 1}, Job{1, 4, 4}, Job{1, 7, 7},
                    Job{1, 12, 4}, Job{1, 6, 6, true},
                    Job{1, 8, 4, false, true}, Job{2, 4, 4}, Job{2, 8, 4},
                    Job{2, 6, 6}, Job{2, 6, 6, true}, Job{2, 8, 2, false, true},
                    Job{3, 6, 6}, Job{3, 12, 6}, Job{3, 9, 9, true},
                    Job{3, 9, 9, false, true}, Job{4, 8, 8},
                    Job{4, 8, 4, false, true}, Job{7, 7, 7}),
    [](const auto& info) {
      const Job& job = info.param;
      return absl::StrCat(job.replicas, "Replicas", job.microbatches,
                          "Microbatches", job.groups, "Groups",
                          job.descends ? "Descending" : "",
                          job.splits ? "Split" : "");
    });

// Missing gradients add zeros, as on one replica.
TEST(OrderedGradientsShortStepTest, WhatIsMissingAddsNothing) {
  for (const int missing : {1, 3, 4, 7, 11}) {
    for (const int replicas : {1, 2, 3, 6}) {
      for (const bool splits : {false, true}) {
        Job job = {replicas, 12, 12, replicas % 2 == 0, splits};
        job.missing = missing;
        absl::Status status = RunJob(job);
        EXPECT_TRUE(status.ok()) << status << ", " << missing << " missing, "
                                 << replicas << " replicas";
        job.groups = 6;
        job.descends = false;
        status = RunJob(job);
        EXPECT_TRUE(status.ok()) << status << ", " << missing << " missing, "
                                 << replicas << " replicas, groups";
      }
    }
  }
}

// A replica without microbatches does not know what others use.
TEST(OrderedGradientsShortStepTest, NothingIsUnusedWhereNothingIsThere) {
  Job job = {3, 12, 12};
  job.find_unused_parameters = false;
  job.missing = 4;
  ExpectOk(RunJob(job));
}

// The first of two microbatches alone gives a gradient, -0.
absl::Status RunNegativeZero(int replicas, int replica, Communicator* group) {
  const at::Tensor parameter = at::zeros({1}, TestDevice()).requires_grad_();
  const FlatBuffers buffers = MakeFlatBuffers({{"p", parameter}});
  const int own = 2 / replicas;
  OrderedGradients gradients(FlatBufferList(buffers), {2, own, false, true},
                             group);
  TANDEM_RETURN_IF_ERROR(gradients.Prepare());
  for (int m = 0; m < own; ++m) {
    const Action action = {ActionKind::kBackward, 0, m};
    TANDEM_RETURN_IF_ERROR(gradients.Before(action, m + 1 == own));
    if (replica + m == 0) parameter.mul(-0.0).sum().backward();
    TANDEM_RETURN_IF_ERROR(gradients.After(action, m + 1 == own));
  }
  TANDEM_RETURN_IF_ERROR(gradients.Finish());
  EXPECT_FALSE(std::signbit(parameter.grad().item<float>())) << replicas;
  return absl::OkStatus();
}

TEST(OrderedGradientsZeroTest, ItsSignDoesNotTellTheLayout) {
  EXPECT_TRUE(RunNegativeZero(1, 0, nullptr).ok());
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) {
    return RunNegativeZero(2, world.rank(), &world);
  }));
}

// The second and the fifth of six microbatches use p2.
TEST(OrderedGradientsErrorTest, WhatAReplicaDoesNotUseIsNamed) {
  Job job = {6, 6, 6};
  job.find_unused_parameters = false;
  const absl::Status status = RunJob(job);
  EXPECT_THAT(status, InvalidArgument("no gradient from any microbatch: p2"));
}

using Node = SummationTree::Node;

at::Tensor Term(int number, int64_t size) {
  return at::randn({size}, GeneratorFor(5, absl::StrCat("term ", number)));
}

// By the tree's definition, from its terms.
at::Tensor SumOf(const SummationTree& tree, const Node& node, int64_t size) {
  if (node.level == 0) return Term(node.index, size);
  const Node left = {node.level - 1, 2 * node.index};
  const at::Tensor sum = SumOf(tree, left, size);
  if (!tree.has_sibling(left)) return sum;
  return sum.add(SumOf(tree, SummationTree::Sibling(left), size));
}

// Simulated devices where the backend is for those.
const c10::DeviceType device_type =
    TestBackend() == "sim_nccl" ? SimDevices(1).front().type() : c10::kCPU;

// Replicas, terms of each, numbers of each.
class OrderedExchangeTest
    : public testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  static CommunicatorOptions Options() {
    CommunicatorOptions options;
    options.backend = TestBackend();
    options.timeout = std::chrono::seconds(30);
    return WithTestDevice(options);
  }

 private:
  TestDeviceTypeScope scope_{device_type};
};

TEST_P(OrderedExchangeTest, EveryReplicaHasTheTreesBits) {
  const auto [replicas, terms, size] = GetParam();
  const SummationTree tree(replicas * terms);
  ExpectOk(RunThreadRanks(
      replicas,
      [&, size = size](Communicator& group) -> absl::Status {
        const OrderedExchange exchange(tree, &group);
        std::vector<at::Tensor> sums;
        for (const Node& node : exchange.cover()) {
          sums.push_back(SumOf(tree, node, size).to(TestDevice()));
        }
        const at::Tensor expected = SumOf(tree, tree.root(), size);
        for (int number : {0, 1}) {
          const at::Tensor result = at::full({size}, -1.0).to(TestDevice());
          TANDEM_RETURN_IF_ERROR(exchange.Sum(sums, number, result));
          EXPECT_TRUE(result.cpu().equal(expected)) << "rank " << group.rank();
        }
        return absl::OkStatus();
      },
      &Options, std::chrono::seconds(30)));
}

// Sizes with replicas that have no share, and shares that are not full.
INSTANTIATE_TEST_SUITE_P(Sizes, OrderedExchangeTest,
                         testing::Combine(testing::Values(2, 3, 4, 7),
                                          testing::Values(1, 2, 3, 6),
                                          testing::Values(0, 1, 17, 211)));

TEST(OrderedExchange, AReplicaAloneHasTheRoot) {
  const SummationTree tree(6);
  const OrderedExchange exchange(tree, nullptr);
  EXPECT_THAT(exchange.cover(), testing::ElementsAre(tree.root()));
}

}  // namespace
}  // namespace tandem::ordered_gradients_test
