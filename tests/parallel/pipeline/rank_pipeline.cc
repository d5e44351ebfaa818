#include "tests/parallel/pipeline/rank_pipeline.h"

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/model/batch_inputs.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/balance/cut.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/schedules.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 11;

int ChunksOf(const RankPipelineCase& each) {
  const bool has_two = absl::StartsWith(each.schedule, "interleaved") ||
                       each.schedule == "looped_bfs" || each.schedule == "zb_v";
  return has_two ? 2 : 1;
}

int DevicesOf(const RankPipelineCase& each) {
  return each.ranks > 1 ? each.ranks : static_cast<int>(each.devices.size());
}

absl::Status RunRank(
    const LayerSpecs& specs, const RankPipelineCase& each, Communicator* group,
    const std::function<absl::Status(PipelineExecutor&, int)>& fn) {
  TANDEM_ASSIGN_OR_RETURN(
      const Schedule schedule,
      MakeSchedule(each.schedule,
                   {DevicesOf(each), ChunksOf(each), each.microbatches}));
  PipelineLayout layout = {{TestDevice()}, group};
  if (group == nullptr) layout.devices = each.devices;
  PipelineModelOptions model;
  model.seed = kSeed;
  model.splits_backward = absl::StartsWith(each.schedule, "zb");
  TANDEM_ASSIGN_OR_RETURN(
      model.cuts,
      UniformCuts(static_cast<int64_t>(specs.size()), schedule.stages));
  TANDEM_ASSIGN_OR_RETURN(
      auto stages, MakeStages(specs, schedule, layout, model, CrossEntropy));
  PipelineOptions options;
  options.checkpointing = each.checkpointing;
  TANDEM_ASSIGN_OR_RETURN(
      const auto executor,
      PipelineExecutor::Create(schedule, std::move(stages), layout, options));
  return fn(*executor, layout.rank());
}

void NoteGradients(const NamedTensors& parameters, StepsOutcome* outcome) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.grad().defined()) continue;
    outcome->gradients[name] = parameter.grad().cpu();
  }
}

}  // namespace

LayerSpec WithWeight(const std::string& name, std::vector<int64_t> shape,
                     LayerLinks links, const LayerCompute& compute,
                     bool is_trained) {
  const auto make = [=](uint64_t seed) {
    auto module = std::make_shared<torch::nn::Module>();
    module->register_parameter(
        "weight", at::randn(shape, GeneratorFor(seed, name)).mul(0.4),
        is_trained);
    Layer layer{name, module, nullptr};
    layer.forward_with_skips = [=](const at::Tensor& x, Skips& skips) {
      return compute(module->parameters()[0], x, skips);
    };
    layer.forward = [run = layer.forward_with_skips](const at::Tensor& x) {
      Skips none;
      return run(x, none);
    };
    return layer;
  };
  return {name, "WithWeight", make, std::move(links)};
}

LayerSpec TanhLinear(const std::string& name, int64_t from, int64_t to) {
  return WithWeight(name, {to, from}, {},
                    [](const at::Tensor& weight, const at::Tensor& x, Skips&) {
                      return at::linear(x, weight).tanh();
                    });
}

int RankPipelineCase::stages() const {
  return DevicesOf(*this) * ChunksOf(*this);
}

absl::Status RunRankPipeline(
    const LayerSpecs& specs, const RankPipelineCase& each,
    const std::function<absl::Status(PipelineExecutor&, int)>& fn) {
  if (each.ranks == 1) return RunRank(specs, each, nullptr, fn);
  CommunicatorOptions options;
  // What is not asked for is the test's.
  options.backend = each.backend == "shm" ? TestBackend() : each.backend;
  options.all_local = true;
  options.timeout = std::chrono::seconds(60);
  return RunThreadRanks(
      each.ranks,
      [&](Communicator& world) { return RunRank(specs, each, &world, fn); },
      options);
}

absl::StatusOr<StepsOutcome> StepsInOnePiece(
    const LayerSpecs& specs, const std::vector<StepsStep>& steps) {
  const LayerList layers = MakeLayers(specs, kSeed);
  const std::vector<std::string> further = FurtherInputs(LinksByLayer(layers));
  StepsOutcome outcome;
  for (const StepsStep& step : steps) {
    const at::AutoGradMode mode(step.trains);
    double samples = 0;
    for (const Batch& each : step.microbatches) samples += each.size;
    Score score;
    for (const Batch& each : step.microbatches) {
      TANDEM_ASSIGN_OR_RETURN(const Skips skips, NamedInputs(each, further));
      const LossResult result = CrossEntropy(
          Forward(layers, each.inputs.clone(), skips), each.targets);
      score += result.score;
      const double weight = each.size / samples;
      const at::Tensor loss =
          weight == 1 ? result.loss : result.loss.mul(weight);
      if (loss.requires_grad()) loss.backward();
    }
    outcome.losses.push_back(score.loss_sum);
  }
  NoteGradients(NamedParameters(layers), &outcome);
  return outcome;
}

absl::StatusOr<StepsOutcome> StepsInStages(const LayerSpecs& specs,
                                           const std::vector<StepsStep>& steps,
                                           const RankPipelineCase& each) {
  absl::Mutex mutex;
  StepsOutcome outcome;
  TANDEM_RETURN_IF_ERROR(RunRankPipeline(
      specs, each, [&](PipelineExecutor& executor, int) -> absl::Status {
        std::vector<double> losses;
        for (const StepsStep& step : steps) {
          Score score;
          if (step.trains) {
            TANDEM_ASSIGN_OR_RETURN(score,
                                    executor.TrainStep(step.microbatches));
          } else {
            TANDEM_ASSIGN_OR_RETURN(const Inference inference,
                                    executor.Infer(step.microbatches, false));
            score = inference.score;
          }
          losses.push_back(score.loss_sum);
        }
        absl::MutexLock lock(&mutex);
        NoteGradients(NamedParameters(executor.stages()), &outcome);
        if (executor.has_last_stage()) outcome.losses = losses;
        return absl::OkStatus();
      }));
  return outcome;
}

void ExpectSame(const absl::StatusOr<StepsOutcome>& found,
                const absl::StatusOr<StepsOutcome>& expected, bool same_bits) {
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->losses.size(), expected->losses.size());
  for (size_t i = 0; i < expected->losses.size(); ++i) {
    EXPECT_NEAR(found->losses[i], expected->losses[i], 1e-5) << "step " << i;
  }
  ASSERT_EQ(found->gradients.size(), expected->gradients.size());
  for (const auto& [name, gradient] : expected->gradients) {
    ASSERT_EQ(found->gradients.count(name), 1u) << name;
    const at::Tensor& found_gradient = found->gradients.at(name);
    EXPECT_TRUE(same_bits ? found_gradient.equal(gradient)
                          : found_gradient.allclose(gradient, 1e-5, 1e-6))
        << name << "\n"
        << found_gradient << "\n"
        << gradient;
  }
}

namespace {

constexpr int64_t kFeatures = 12;
constexpr int64_t kClasses = 5;

}  // namespace

LayerSpecs ExecutorFixture::Specs() {
  return Mlp({kFeatures, 6, 16, kClasses});
}

std::vector<Batch> ExecutorFixture::BatchesOf(int64_t size, int parts,
                                              int seed) {
  at::manual_seed(seed);
  const at::Tensor inputs = at::randn({size, kFeatures});
  const at::Tensor targets = at::arange(size).remainder(kClasses);
  std::vector<Batch> batches;
  const auto inputs_of = inputs.tensor_split(parts);
  const auto targets_of = targets.tensor_split(parts);
  for (int i = 0; i < parts; ++i) {
    batches.push_back({inputs_of[i], targets_of[i], inputs_of[i].size(0)});
  }
  return batches;
}

absl::StatusOr<std::unique_ptr<PipelineExecutor>> ExecutorFixture::Make(
    const Schedule& schedule, const LayerSpecs& specs,
    const PipelineOptions& options) {
  PipelineModelOptions model;
  model.seed = kSeed;
  model.cuts =
      *UniformCuts(static_cast<int64_t>(specs.size()), schedule.stages);
  model.splits_backward = schedule.name[0] == 'z';
  const PipelineLayout layout = {Devices(schedule.devices()), nullptr};
  auto stages = MakeStages(specs, schedule, layout, model, CrossEntropy);
  if (!stages.ok()) return stages.status();
  return PipelineExecutor::Create(schedule, *std::move(stages), layout,
                                  options);
}

}  // namespace tandem
