#include "tests/models/tensor_parallel_lab.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "core/model/parameter_traits.h"
#include "core/model/weight_gradient_sink.h"
#include "core/precision/autocast.h"
#include "core/testing/statuses.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 5;

// One rank's, of its parts of parameters.
struct RankStep {
  LossResult result;
  NamedTensors values;
  TensorsByName gradients;
  TraitsByName traits;
  at::Tensor input_gradient;
  AxisCalls forward, backward, late;
};

at::Tensor Inputs(const TensorProblem& problem) {
  if (!problem.inputs.is_floating_point()) return problem.inputs;
  return problem.inputs.to(problem.dtype)
      .detach()
      .requires_grad_(problem.wants_input_gradient);
}

// `calls` gives what has been issued since it was last asked.
RankStep Step(const TensorProblem& problem,
              const std::function<AxisCalls()>& calls) {
  const SampleScope samples(problem.samples);
  const LayerList layers = MakeLayers(problem.specs, kSeed);
  RankStep step;
  step.traits = NamedTraits(layers);
  EXPECT_TRUE(calls().empty()) << "making layers is no collective";
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    step.values.emplace_back(name, parameter.detach().clone());
    parameter.set_data(parameter.to(problem.dtype));
  }
  const at::Tensor inputs = Inputs(problem);
  const auto sink = problem.splits_backward
                        ? std::make_shared<WeightGradientSink>()
                        : nullptr;
  {
    const WeightGradientSink::Scope leaves(sink);
    const AutocastGuard autocast(at::kCPU, problem.autocast);
    const auto [outputs, skips] = ForwardWithSkips(
        layers, inputs, problem.further, problem.loss.names().outputs);
    step.result = problem.loss({outputs, skips, problem.targets, {}});
  }
  step.forward = calls();
  step.result.loss.backward();
  step.backward = calls();
  if (sink != nullptr) {
    EXPECT_GT(sink->size(), 0u);
    ExpectOk(sink->Flush());
  }
  step.late = calls();
  step.input_gradient = inputs.grad();
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    step.gradients[name] = parameter.grad();
  }
  return step;
}

// Block by block, what each rank has of it.
at::Tensor JoinShards(const std::vector<at::Tensor>& parts,
                      const ParameterShard& shard) {
  std::vector<at::Tensor> pieces;
  for (int64_t block = 0; block < shard.blocks; ++block) {
    for (const at::Tensor& part : parts) {
      const int64_t size = part.size(shard.dim) / shard.blocks;
      pieces.push_back(part.narrow(shard.dim, block * size, size));
    }
  }
  return at::cat(pieces, shard.dim);
}

void ExpectSameBits(const std::vector<at::Tensor>& tensors,
                    const std::string& what) {
  for (const at::Tensor& each : tensors) {
    EXPECT_EQ(each.defined(), tensors[0].defined()) << what;
    if (!each.defined()) return;
    EXPECT_TRUE(each.equal(tensors[0])) << what << " differs between ranks";
  }
}

at::Tensor Whole(const std::vector<at::Tensor>& parts,
                 const ParameterTraits& traits, const std::string& name,
                 bool are_gradients) {
  if (traits.shard.has_value()) {
    EXPECT_EQ(traits.shard->axis, "tensor");
    return JoinShards(parts, *traits.shard);
  }
  if (!are_gradients || !traits.reduces_over("tensor")) {
    ExpectSameBits(parts, name);
    return parts[0];
  }
  at::Tensor sum = parts[0].clone();
  for (size_t i = 1; i < parts.size(); ++i) sum += parts[i];
  return sum;
}

void ExpectNear(const at::Tensor& actual, const at::Tensor& expected,
                double tolerance, const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!expected.defined()) return;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (tolerance == 0) {
    EXPECT_TRUE(actual.equal(expected)) << what;
    return;
  }
  const at::Tensor right = expected.to(at::kDouble);
  EXPECT_LE((actual.to(at::kDouble) - right).norm().item<double>(),
            tolerance * right.norm().item<double>())
      << what;
}

}  // namespace

std::shared_ptr<const TensorParallel> MakeTensorParallel(
    std::shared_ptr<AxisGroup> group, bool sequence_parallel) {
  auto parallel = std::make_shared<TensorParallel>();
  parallel->group = std::move(group);
  parallel->sequence_parallel = sequence_parallel;
  return parallel;
}

TensorStep WholeStep(const TensorProblem& problem) {
  RankStep only = Step(problem, [] { return AxisCalls(); });
  EXPECT_TRUE(only.traits.empty());
  TensorStep step;
  step.result = only.result;
  step.values = {only.values.begin(), only.values.end()};
  step.gradients = only.gradients;
  step.input_gradient = only.input_gradient;
  return step;
}

TensorStep DividedStep(const TensorProblem& problem, int64_t degree,
                       bool sequence_parallel) {
  absl::Mutex mutex;
  std::map<int64_t, RankStep> ranks;
  ExpectOk(
      RunAxisRanks(degree, [&](const std::shared_ptr<ThreadAxisGroup>& group) {
        const TensorParallelScope scope(
            MakeTensorParallel(group, sequence_parallel));
        RankStep step = Step(problem, [&] { return group->TakeCalls(); });
        const absl::MutexLock lock(&mutex);
        ranks[group->index()] = std::move(step);
        return absl::OkStatus();
      }));
  TensorStep step;
  if (static_cast<int64_t>(ranks.size()) != degree) return step;
  std::vector<at::Tensor> losses, inputs;
  std::map<std::string, std::vector<at::Tensor>> values, gradients;
  for (const auto& [index, rank] : ranks) {
    losses.push_back(rank.result.loss.detach());
    inputs.push_back(rank.input_gradient);
    for (const auto& [name, value] : rank.values) {
      values[name].push_back(value);
      gradients[name].push_back(rank.gradients.at(name));
    }
    EXPECT_EQ(rank.forward, ranks[0].forward);
    EXPECT_EQ(rank.backward, ranks[0].backward);
    EXPECT_EQ(rank.result.score.correct, ranks[0].result.score.correct);
  }
  ExpectSameBits(losses, "the loss");
  ExpectSameBits(inputs, "the gradient of the input");
  step.result = ranks[0].result;
  step.input_gradient = inputs[0];
  step.forward = ranks[0].forward;
  step.backward = ranks[0].backward;
  step.late = ranks[0].late;
  for (const auto& [name, parts] : values) {
    const ParameterTraits traits = EffectiveTraits(ranks[0].traits, name);
    step.values[name] = Whole(parts, traits, name, /*are_gradients=*/false);
    step.gradients[name] =
        Whole(gradients[name], traits, name, /*are_gradients=*/true);
  }
  return step;
}

void ExpectSameStep(const TensorStep& actual, const TensorStep& expected,
                    double tolerance) {
  ASSERT_TRUE(actual.result.loss.defined());
  ExpectNear(actual.result.loss.detach(), expected.result.loss.detach(),
             tolerance, "the loss");
  EXPECT_NEAR(actual.result.score.loss_sum, expected.result.score.loss_sum,
              tolerance * expected.result.score.loss_sum);
  EXPECT_EQ(actual.result.score.count, expected.result.score.count);
  ExpectNear(actual.input_gradient, expected.input_gradient, tolerance,
             "the gradient of the input");
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (const auto& [name, value] : expected.values) {
    ASSERT_EQ(actual.values.count(name), 1u) << name;
    EXPECT_TRUE(actual.values.at(name).equal(value))
        << "initial values of " << name << " differ";
    ExpectNear(actual.gradients.at(name), expected.gradients.at(name),
               tolerance, "the gradient of " + name);
  }
}

}  // namespace tandem
