// Pipelines whose middle microbatches are replayed as graphs have the bits of
// those that run them, on simulated devices, whose graphs repeat the host's
// numbers as CUDA's do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "parallel/pipeline/executor.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/graph_lab.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 7;
constexpr int kWarmUp = 3;
constexpr int kMicrobatches = 6;  // of a replica

struct Outcome {
  LabOutcome lab;
  std::vector<std::string> graphs;  // by rank
  std::vector<int64_t> replays;
};

struct Job {
  LabLayout layout;
  std::string model = "gpt_tiny";
  LabChange change = nullptr;
  // Of the whole batch, for each microbatch of a replica.
  int64_t size = 2;
  int short_step = -1;  // has a batch of half as many samples
  std::function<at::Tensor(const at::Tensor& loss)> looks = nullptr;
};

LabLayout Layout(const std::string& schedule, int replicas, int pipe,
                 int devices, int chunks = 1) {
  LabLayout layout = {
      absl::StrCat(schedule, " ", replicas, " x ", pipe, " x ", devices),
      schedule,
      replicas,
      pipe,
      devices,
      chunks};
  layout.microbatches = kMicrobatches * replicas;
  layout.backend = "sim_nccl";
  layout.device_pool = SimDevices(layout.ranks() * devices);
  return layout;
}

// Another one in each step.
double RateOf(int step) { return 0.05 / (1 + step); }

LabJob LabJobOf(const Job& job, bool graphs, Outcome* outcome) {
  LabJob lab = ModelJob(job.model, 0, kSteps,
                        [&job, graphs](MeshStrategyOptions& options) {
                          if (job.change) job.change(options);
                          options.cuda_graphs = graphs;
                        });
  const int64_t whole = job.size * job.layout.microbatches;
  lab.batch = [job, whole](int step) {
    return LabBatch(job.model, step == job.short_step ? whole / 2 : whole,
                    kLabSeed, step);
  };
  if (job.looks) {
    lab.loss = LossFunction([looks = job.looks](const at::Tensor& outputs,
                                                const at::Tensor& targets) {
      LossResult result = CrossEntropy(outputs, targets);
      result.loss = looks(result.loss);
      return result;
    });
  }
  lab.step = [](const LabRank& rank, const Batch& batch, int step) {
    return rank.strategy->TrainStep(batch, RateOf(step));
  };
  const auto ranks = static_cast<size_t>(job.layout.ranks());
  outcome->graphs.resize(ranks);
  outcome->replays.resize(ranks);
  lab.end = [outcome](const LabRank& rank) {
    const auto at = static_cast<size_t>(rank.rank);
    const auto& strategy = static_cast<const MeshStrategy&>(*rank.strategy);
    outcome->graphs[at] = strategy.DescribeGraph();
    outcome->replays[at] = strategy.executor().replays();
    EXPECT_EQ(strategy.replayed_steps(), 0);
    return absl::OkStatus();
  };
  lab.test = 0;
  return lab;
}

Outcome Train(const Job& job, bool graphs) {
  Outcome outcome;
  auto trained = TrainInLab(job.layout, LabJobOf(job, graphs, &outcome));
  EXPECT_TRUE(trained.ok()) << trained.status();
  if (trained.ok()) outcome.lab = *std::move(trained);
  return outcome;
}

// The outcome with graphs, once it has been compared.
Outcome ExpectSameBits(const Job& job) {
  const Outcome expected = Train(job, /*graphs=*/false);
  Outcome found = Train(job, /*graphs=*/true);
  EXPECT_THAT(expected.graphs, testing::Each(""));
  EXPECT_THAT(expected.replays, testing::Each(0));
  ExpectSameBits(absl::StatusOr<LabOutcome>(found.lab),
                 absl::StatusOr<LabOutcome>(expected.lab));
  return found;
}

void ExpectCaptured(const Job& job, int64_t replays_of_rank) {
  const Outcome found = ExpectSameBits(job);
  EXPECT_THAT(found.graphs,
              testing::Each("middle microbatches captured after 3 steps"));
  EXPECT_THAT(found.replays, testing::Each(replays_of_rank));
}

// All of a rank's, of which `parts` of a microbatch are actions.
int64_t ReplaysOf(const LabLayout& layout, int parts, int steps) {
  return int64_t{steps} * (kMicrobatches - 2) * parts * layout.devices *
         layout.chunks;
}

class MicrobatchGraphsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(4); }
};

// A cell is a schedule, a layout and a technique.
TEST_F(MicrobatchGraphsTest, EveryCellHasTheSameBits) {
  struct Schedule {
    const char* name;
    int chunks;
    int parts;
  };
  struct Technique {
    const char* name;
    LabChange change;
  };
  const std::vector<Technique> techniques = {
      {"SGD", nullptr},
      {"AdamW, bf16, clipped",
       [](auto& o) {
         o.ddp.mixed_precision.param_dtype = at::kBFloat16;
         o.optimizer = AdamWOptions();
         o.clip_norm = 0.5;
       }},
  };
  int cells = 0;
  for (const Schedule& schedule :
       {Schedule{"gpipe", 1, 2}, Schedule{"1f1b", 1, 2},
        Schedule{"interleaved_1f1b", 2, 2}, Schedule{"zb_h1", 1, 3}}) {
    for (const auto& [replicas, pipe, devices] :
         {std::tuple(1, 1, 2), std::tuple(1, 2, 1), std::tuple(2, 1, 2),
          std::tuple(2, 2, 1)}) {
      for (const Technique& technique : techniques) {
        // That one on one rank, and on four.
        const int ranks = replicas * pipe;
        if (technique.change && ranks != 1 && ranks != 4) continue;
        Job job;
        job.layout =
            Layout(schedule.name, replicas, pipe, devices, schedule.chunks);
        job.change = technique.change;
        SCOPED_TRACE(absl::StrCat(job.layout.name, ", ", technique.name));
        std::cout << job.layout.name << ", " << technique.name << "\n";
        ExpectCaptured(job,
                       ReplaysOf(job.layout, schedule.parts, kSteps - kWarmUp));
        ++cells;
      }
    }
  }
  std::cout << cells << " cells\n";
  EXPECT_EQ(cells, 24);
}

// The scale lies on the devices, and is another one after a step or two.
TEST_F(MicrobatchGraphsTest, ScaledLossesHaveTheSameBits) {
  Job job;
  job.layout = Layout("1f1b", 1, 1, 2);
  job.change = [](auto& o) {
    o.ddp.mixed_precision.param_dtype = at::kHalf;
    o.grad_scaler.emplace();
    o.grad_scaler->growth_interval = 2;
  };
  ExpectCaptured(job, ReplaysOf(job.layout, 2, kSteps - kWarmUp));
}

// Replicas exchange through the host, beside what devices replay.
TEST_F(MicrobatchGraphsTest, ReplicasMayExchangeThroughTheHost) {
  Job job;
  job.layout = Layout("1f1b", 2, 1, 2);
  job.layout.backend = "shm";
  ExpectCaptured(job, ReplaysOf(job.layout, 2, kSteps - kWarmUp));
}

// Its microbatches weigh as much, but have fewer samples.
TEST_F(MicrobatchGraphsTest, AStepOfAnotherFormRunsAsWithout) {
  Job job;
  job.layout = Layout("1f1b", 1, 1, 2);
  job.short_step = 5;
  ExpectCaptured(job, ReplaysOf(job.layout, 2, kSteps - kWarmUp - 1));
}

// As many graphs as are under way at once, not one for each microbatch.
TEST_F(MicrobatchGraphsTest, HoldsWhatTheScheduleHolds) {
  for (const bool graphs : {false, true}) {
    Job job;
    job.layout = Layout("1f1b", 1, 1, 2);
    LabJob lab = ModelJob(job.model, 0, 0, [graphs](auto& options) {
      options.cuda_graphs = graphs;
    });
    const absl::Status done =
        OnLabRanks(job.layout, lab, [](const LabRank& rank) -> absl::Status {
          TANDEM_RETURN_IF_ERROR(
              SubmitLabSteps(*rank.strategy, "gpt_tiny", 0, kSteps));
          const auto& strategy = static_cast<MeshStrategy&>(*rank.strategy);
          EXPECT_THAT(strategy.executor().peak_activations(),
                      testing::ElementsAre(2, 1));
          return rank.strategy->TakeScores().status();
        });
    EXPECT_TRUE(done.ok()) << done;
  }
}

TEST_F(MicrobatchGraphsTest, TheHostWaitsForNothing) {
  ExpectNoHostWaitsInGraphs(Layout("1f1b", 1, 1, 2));
}

void ExpectOff(const Job& job, const std::string& why) {
  const Outcome found = ExpectSameBits(job);
  for (const std::string& each : found.graphs)
    EXPECT_THAT(each, HasSubstr(why));
}

TEST_F(MicrobatchGraphsTest, DropoutRunsAsWithout) {
  Job job;
  job.layout = Layout("1f1b", 1, 1, 2);
  job.model = "mlp_dropout";
  ExpectOff(job, "layers draw random numbers for each microbatch");
}

TEST_F(MicrobatchGraphsTest, LossesThatLayersAddRunAsWithout) {
  Job job;
  job.layout = Layout("1f1b", 1, 1, 2);
  job.looks = [](const at::Tensor& loss) {
    AddAuxiliaryLoss("square", loss.square());
    return loss;
  };
  ExpectOff(job, "off in stage 1: layers add losses of their own");
}

TEST_F(MicrobatchGraphsTest, TooFewMicrobatchesAreOff) {
  Job job;
  job.layout = Layout("1f1b", 1, 1, 2);
  job.layout.microbatches = 2;
  ExpectOff(job, "off: a step has 2 microbatches");
}

// The loss looks at what it computes: the other stage is captured.
TEST_F(MicrobatchGraphsTest, AForwardThatCannotBeCapturedRunsAsWithout) {
  Job job;
  job.layout = Layout("1f1b", 1, 1, 2);
  job.looks = [](const at::Tensor& loss) {
    loss.item<float>();
    return loss;
  };
  ExpectOff(job, "off in stage 1: a microbatch cannot be captured");
  ExpectOff(job, "_local_scalar_dense");
}

// Looks at its gradient.
struct LookingBack : torch::autograd::Function<LookingBack> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*context*/,
      const torch::autograd::variable_list& gradients) {
    gradients[0].sum().item<float>();
    return {gradients[0]};
  }
};

TEST_F(MicrobatchGraphsTest, ABackwardThatCannotBeCapturedRunsAsWithout) {
  for (const char* schedule : {"1f1b", "gpipe", "zb_h1"}) {
    SCOPED_TRACE(schedule);
    Job job;
    job.layout = Layout(schedule, 1, 1, 2);
    job.looks = [](const at::Tensor& loss) { return LookingBack::apply(loss); };
    ExpectOff(job,
              "off in stage 1: a microbatch's backward cannot be captured");
  }
}

}  // namespace
}  // namespace tandem
