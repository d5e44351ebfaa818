// Steps that a graph replays have the bits of steps that run, on simulated
// devices, whose graphs repeat the host's numbers as CUDA's do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cuda/host_step_kernels.h"
#include "core/cuda/step_kernels_of.h"
#include "core/loss/loss.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "models/resnet.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/graph_lab.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 9;
constexpr int kWarmUp = 3;

struct Outcome {
  LabOutcome lab;
  std::string graph;
  int64_t replays = 0;
  int64_t skipped = 0;                            // of scaled losses
  std::vector<std::optional<double>> norms = {};  // by step
};

struct Job {
  std::string model = "mlp_small";
  int replicas = 1;
  int microbatches = 1;  // of a replica
  int64_t size = 12;     // of a replica's batch
  int short_step = -1;   // has a batch of fewer samples
  int save_step = -1;    // behind it the state is gathered
  bool measures_norm = false;
  LabChange change = nullptr;
  std::string backend = "sim_nccl";
  bool on_cpu = false;
};

// Another one in each step.
double RateOf(int step) { return 0.05 / (1 + step); }

LabJob LabJobOf(const Job& job, bool graphs, Outcome* outcome) {
  LabJob lab = ModelJob(job.model, job.size, kSteps,
                        [&job, graphs](MeshStrategyOptions& options) {
                          if (job.change) job.change(options);
                          options.cuda_graphs = graphs;
                        });
  if (job.model == "resnet18") {
    lab.specs = [] {
      ResnetOptions options;
      options.classes = 5;
      options.width = 4;
      return Resnet18(options);
    };
  }
  lab.share = [job](int step, int replica) {
    const bool is_short = step == job.short_step;
    const int64_t size = is_short ? job.size / 2 : job.size;
    Batch batch =
        LabBatch(job.model == "resnet18" ? "mlp_small" : job.model, size,
                 kLabSeed + static_cast<uint64_t>(replica), step);
    if (job.model == "resnet18") {
      batch.inputs = batch.inputs.repeat({1, 32}).view({size, 3, 8, 8});
    }
    return batch;
  };
  lab.step = [job, outcome](const LabRank& rank, const Batch& batch,
                            int step) -> absl::StatusOr<Score> {
    Strategy& strategy = *rank.strategy;
    if (job.measures_norm) strategy.MeasureGradientNorm();
    TANDEM_RETURN_IF_ERROR(strategy.SubmitStep(batch, RateOf(step)));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<StepScore> scores,
                            strategy.TakeScores());
    if (rank.rank == 0) outcome->norms.push_back(scores.back().gradient_norm);
    if (step == job.save_step) {
      TANDEM_RETURN_IF_ERROR(strategy.GatherState().status());
    }
    return scores.back().score;
  };
  lab.end = [outcome](const LabRank& rank) {
    if (rank.rank == 0) {
      outcome->graph = rank.strategy->DescribeGraph();
      outcome->replays =
          static_cast<MeshStrategy*>(rank.strategy)->replayed_steps();
      const LossScale* const scale = rank.strategy->loss_scale();
      outcome->skipped = scale == nullptr ? 0 : scale->skipped_steps();
    }
    return absl::OkStatus();
  };
  lab.test = 0;
  return lab;
}

Outcome Train(const Job& job, bool graphs) {
  LabLayout layout = {"", "sequential", job.replicas, 1, 1};
  layout.microbatches = job.microbatches * job.replicas;
  layout.backend = job.backend;
  if (!job.on_cpu) layout.device_pool = SimDevices(job.replicas);
  Outcome outcome;
  auto trained = TrainInLab(layout, LabJobOf(job, graphs, &outcome));
  EXPECT_TRUE(trained.ok()) << trained.status();
  if (trained.ok()) outcome.lab = *std::move(trained);
  return outcome;
}

void ExpectSameBits(const Job& job, int replays) {
  const Outcome expected = Train(job, /*graphs=*/false);
  const Outcome found = Train(job, /*graphs=*/true);
  EXPECT_EQ(expected.graph, "");
  EXPECT_EQ(found.graph, "captured after 3 steps");
  EXPECT_EQ(found.replays, replays);
  ExpectSameBits(absl::StatusOr<LabOutcome>(found.lab),
                 absl::StatusOr<LabOutcome>(expected.lab));
}

class CudaGraphsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(2); }
};

// A scale that doubles with each good step: from some size on, every second
// step overflows, in the warm-up or in replays.
LabChange InHalf(double init_scale, const OptimizerOptions& optimizer) {
  return [=](MeshStrategyOptions& options) {
    options.ddp.mixed_precision.param_dtype = at::kHalf;
    options.optimizer = optimizer;
    options.grad_scaler.emplace();
    options.grad_scaler->init_scale = init_scale;
    options.grad_scaler->growth_interval = 1;
  };
}

struct Technique {
  const char* name;
  LabChange change;
};

std::vector<Technique> Techniques() {
  return {
      {"SGD", nullptr},
      {"SGD with momentum", [](auto& o) { o.optimizer = SgdOptions{0.9}; }},
      {"AdamW", [](auto& o) { o.optimizer = AdamWOptions(); }},
      {"Adam with amsgrad",
       [](auto& o) {
         AdamOptions adam;
         adam.amsgrad = true;
         o.optimizer = adam;
       }},
      {"clip_value", [](auto& o) { o.clip_value = 0.01; }},
      {"bf16",
       [](auto& o) {
         o.ddp.mixed_precision.param_dtype = at::kBFloat16;
         o.optimizer = AdamWOptions();
       }},
      {"fp16", InHalf(1 << 20, AdamWOptions())},
  };
}

TEST_F(CudaGraphsTest, OneDeviceHasTheSameBits) {
  for (const char* model : {"mlp_small", "gpt_tiny"}) {
    for (const Technique& each : Techniques()) {
      SCOPED_TRACE(absl::StrCat(model, ", ", each.name));
      Job job;
      job.model = model;
      job.change = each.change;
      ExpectSameBits(job, kSteps - kWarmUp);
    }
  }
}

TEST_F(CudaGraphsTest, SeveralMicrobatchesAndBatchNormHaveTheSameBits) {
  Job job;
  job.model = "resnet18";
  job.microbatches = 2;
  job.change = [](auto& o) { o.optimizer = AdamWOptions(); };
  ExpectSameBits(job, kSteps - kWarmUp);
}

TEST_F(CudaGraphsTest, ReplicasHaveTheSameBits) {
  for (const Technique& each : Techniques()) {
    SCOPED_TRACE(each.name);
    Job job;
    job.replicas = 2;
    job.microbatches = 2;
    job.change = [&each](auto& o) {
      o.ddp.bucket_cap_mb = 0.01;
      if (each.change) each.change(o);
    };
    ExpectSameBits(job, kSteps - kWarmUp);
  }
}

TEST_F(CudaGraphsTest, ReplicasWithBatchNormHaveTheSameBits) {
  Job job;
  job.model = "resnet18";
  job.replicas = 2;
  ExpectSameBits(job, kSteps - kWarmUp);
}

// The device's kernels clip, with numbers that lie there.
TEST_F(CudaGraphsTest, ClippingOnTheDeviceHasTheSameBits) {
  const c10::DeviceType type = SimDevices(1).front().type();
  RegisterStepKernels(type, &HostStepKernels());
  for (const int replicas : {1, 2}) {
    for (const Technique& each : Techniques()) {
      if (std::string(each.name) == "Adam with amsgrad") continue;
      SCOPED_TRACE(absl::StrCat(each.name, " ", replicas));
      Job job;
      job.replicas = replicas;
      job.change = [&each](auto& o) {
        o.clip_norm = 0.05;
        if (each.change) each.change(o);
      };
      ExpectSameBits(job, kSteps - kWarmUp);
    }
  }
  RegisterStepKernels(type, nullptr);
}

// Before the device clips it, but of values that are, in a graph and without.
TEST_F(CudaGraphsTest, TheNormIsThatBeforeClipping) {
  const c10::DeviceType type = SimDevices(1).front().type();
  RegisterStepKernels(type, &HostStepKernels());
  constexpr double kClip = 0.05;
  for (const bool halves : {false, true}) {
    SCOPED_TRACE(halves);
    const auto job_of = [&](double clip_norm, double clip_value = 0) {
      Job job;
      job.measures_norm = true;
      job.change = [=](auto& o) {
        if (halves) InHalf(1 << 10, AdamWOptions())(o);
        if (halves) o.grad_scaler->growth_interval = 100;
        o.clip_norm = clip_norm;
        o.clip_value = clip_value;
      };
      return job;
    };
    const Outcome without = Train(job_of(0), /*graphs=*/false);
    const Outcome expected = Train(job_of(kClip), /*graphs=*/false);
    const Outcome found = Train(job_of(kClip), /*graphs=*/true);
    EXPECT_EQ(found.replays, kSteps - kWarmUp);
    EXPECT_EQ(expected.norms[0], without.norms[0]);
    EXPECT_EQ(found.norms, expected.norms);
    for (const auto& norm : found.norms) EXPECT_GT(norm, 2 * kClip);
    const Outcome by_value = Train(job_of(kClip, 1e-5), /*graphs=*/true);
    EXPECT_EQ(by_value.replays, kSteps - kWarmUp);
    EXPECT_GT(by_value.norms.back(), 0);
    EXPECT_LT(by_value.norms.back(), kClip);
  }
  RegisterStepKernels(type, nullptr);
}

TEST_F(CudaGraphsTest, AShortBatchRunsWithoutTheGraph) {
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    Job job;
    job.replicas = replicas;
    job.short_step = 6;
    job.change = [](auto& o) { o.optimizer = AdamWOptions(); };
    ExpectSameBits(job, kSteps - kWarmUp - 1);
  }
}

// It is no step of the form that is captured.
TEST_F(CudaGraphsTest, AShortBatchWithinTheWarmUpPutsItOff) {
  Job job;
  job.short_step = 2;
  const Outcome expected = Train(job, /*graphs=*/false);
  const Outcome found = Train(job, /*graphs=*/true);
  EXPECT_EQ(found.graph, "captured after 6 steps");
  EXPECT_EQ(found.replays, kSteps - 6);
  ExpectSameBits(absl::StatusOr<LabOutcome>(found.lab),
                 absl::StatusOr<LabOutcome>(expected.lab));
}

// What the device leaves out, a replay leaves out, too.
TEST_F(CudaGraphsTest, ScaledLossesHaveTheSameBits) {
  int cells = 0;
  for (const int replicas : {1, 2}) {
    for (const OptimizerOptions& optimizer : std::vector<OptimizerOptions>{
             SgdOptions{0.9}, AdamOptions(), AdamWOptions()}) {
      SCOPED_TRACE(absl::StrCat(replicas, " replicas, cell ", cells++));
      Job job;
      job.replicas = replicas;
      job.short_step = 6;
      job.save_step = 4;  // when the host asks what was skipped
      job.change = InHalf(1 << 20, optimizer);
      const Outcome expected = Train(job, /*graphs=*/false);
      const Outcome found = Train(job, /*graphs=*/true);
      EXPECT_EQ(found.graph, "captured after 3 steps");
      EXPECT_EQ(found.replays, kSteps - kWarmUp - 1);
      EXPECT_GT(found.skipped, 1);
      EXPECT_LT(found.skipped, kSteps - 1);
      EXPECT_EQ(found.skipped, expected.skipped);
      ExpectSameBits(absl::StatusOr<LabOutcome>(found.lab),
                     absl::StatusOr<LabOutcome>(expected.lab));
    }
  }
  std::cout << cells << " cells of scaled losses\n";
  EXPECT_EQ(cells, 6);
}

// An optimizer's first step is none like the others: it must have been done.
TEST_F(CudaGraphsTest, StepsThatAreSkippedFirstPutItOff) {
  Job job;
  job.change = InHalf(1 << 24, AdamWOptions());
  const Outcome expected = Train(job, /*graphs=*/false);
  const Outcome found = Train(job, /*graphs=*/true);
  EXPECT_GT(found.skipped, kWarmUp);
  EXPECT_EQ(found.graph,
            absl::StrCat("captured after ", kSteps - found.replays, " steps"));
  EXPECT_GT(found.replays, 0);
  EXPECT_LT(found.replays, kSteps - kWarmUp);
  ExpectSameBits(absl::StatusOr<LabOutcome>(found.lab),
                 absl::StatusOr<LabOutcome>(expected.lab));
}

void ExpectOff(const Job& job, const std::string& why) {
  const Outcome expected = Train(job, /*graphs=*/false);
  const Outcome found = Train(job, /*graphs=*/true);
  EXPECT_THAT(found.graph, HasSubstr("off: "));
  EXPECT_THAT(found.graph, HasSubstr(why));
  EXPECT_EQ(found.replays, 0);
  ExpectSameBits(absl::StatusOr<LabOutcome>(found.lab),
                 absl::StatusOr<LabOutcome>(expected.lab));
}

TEST_F(CudaGraphsTest, WhatCannotBeCapturedRunsAsWithout) {
  Job dropout;
  dropout.model = "mlp_dropout";
  ExpectOff(dropout, "layers draw random numbers");
  Job clipped;
  clipped.change = [](auto& o) { o.clip_norm = 0.05; };
  ExpectOff(clipped, "the host reads the norm");
  Job on_host;
  on_host.replicas = 2;
  on_host.backend = "shm";
  ExpectOff(on_host, "through the host's memory");
  Job cpu;
  cpu.on_cpu = true;
  cpu.backend = "shm";
  ExpectOff(cpu, "has no graphs");
}

// A loss that looks at what it computes.
at::Tensor Looking(const at::Tensor& loss) {
  loss.item<float>();
  return loss;
}

TEST_F(CudaGraphsTest, WhatFailsInACaptureRunsAsWithout) {
  LabLayout layout = {"", "sequential", 1, 1, 1};
  layout.microbatches = 1;
  layout.device_pool = SimDevices(1);
  Job job;
  std::vector<LabOutcome> outcomes;
  for (const bool graphs : {false, true}) {
    Outcome outcome;
    LabJob lab = LabJobOf(job, graphs, &outcome);
    lab.loss =
        LossFunction([](const at::Tensor& outputs, const at::Tensor& targets) {
          LossResult result = CrossEntropy(outputs, targets);
          Looking(result.loss);
          return result;
        });
    auto trained = TrainInLab(layout, lab);
    ASSERT_TRUE(trained.ok()) << trained.status();
    outcomes.push_back(*std::move(trained));
    if (!graphs) continue;
    EXPECT_THAT(outcome.graph, HasSubstr("off: a step cannot be captured"));
    EXPECT_THAT(outcome.graph, HasSubstr("_local_scalar_dense"));
  }
  ExpectSameBits(absl::StatusOr<LabOutcome>(outcomes[1]),
                 absl::StatusOr<LabOutcome>(outcomes[0]));
}

TEST_F(CudaGraphsTest, TheHostWaitsForNothing) {
  LabLayout layout = {"", "sequential", 1, 1, 1};
  layout.microbatches = 2;
  layout.device_pool = SimDevices(1);
  ExpectNoHostWaitsInGraphs(layout);
}

}  // namespace
}  // namespace tandem
