// The formulas beside what simulated devices hold, whose books are exact: on
// one device, in each stage of a pipeline, and of replicas.

#include "models/transformer/training_memory.h"

#include <c10/core/Device.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/fused/causal_attention.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "models/transformer/sizes.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/validator.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

constexpr int kMostDevices = 16;

const std::vector<c10::Device>& Devices() {
  static const auto* const devices =
      new std::vector<c10::Device>(SimDevices(kMostDevices));
  return *devices;
}

using Sizes = std::variant<GptOptions, LlamaOptions>;

struct Problem {
  std::string name;
  Sizes sizes;
  int64_t samples;  // of a microbatch
  int64_t tokens;
  int64_t loss_chunk = 0;
  bool is_bf16 = false;
  int first_device = 0;  // of its own, of those that are left
  int places = 4;        // the first of kPlaces
};

GptOptions Gpt(const std::string& name, const TransformerSizes& other) {
  return WithSizes(*GptSize(name), other);
}

GptOptions WithDropout(GptOptions sizes) {
  sizes.dropout = 0.1;
  return sizes;
}

LlamaOptions Llama(const std::string& name, const TransformerSizes& other) {
  return WithSizes(*LlamaSize(name), other);
}

// gpt_tiny; a narrower baby GPT, with dropout, too; Llamas with as many heads
// of keys as of queries, and with fewer; long and short, tied and not.
std::vector<Problem> Problems() {
  return {
      {"gpt_tiny", Gpt("gpt_tiny", {}), 2, 128},
      {"baby GPT", Gpt("gpt_baby", {6, 96, 6}), 3, 64},
      {"baby GPT, dropout", WithDropout(Gpt("gpt_baby", {6, 96, 6})), 3, 64},
      {"baby GPT, chunks", Gpt("gpt_baby", {6, 96, 6}), 3, 64, 32},
      {"llama_tiny", Llama("llama_tiny", {4, 64, 4, 2, 176}), 3, 40},
      {"llama_tiny_tied", Llama("llama_tiny_tied", {4, 96, 6, 6, 200}), 2, 100},
      {"Llama, chunks", Llama("llama_tiny", {5, 64, 4, 1, 256}), 2, 64, 64},
      {"baby GPT, bf16", Gpt("gpt_baby", {6, 96, 6}), 3, 64, 0, true, 0},
      {"Llama, bf16", Llama("llama_tiny", {4, 96, 6, 2, 256}), 2, 64, 0, true,
       9, 3}};
}

LayerSpecs ProblemLayers(const Problem& problem) {
  const auto make = [](const auto& sizes) {
    if constexpr (std::is_same_v<std::decay_t<decltype(sizes)>, GptOptions>) {
      return *tandem::Gpt(sizes);
    } else {
      return *tandem::Llama(sizes);
    }
  };
  LayerSpecs specs = std::visit(make, problem.sizes);
  return problem.loss_chunk > 0 ? *WithoutLogits(std::move(specs)) : specs;
}

int64_t VocabularySize(const Problem& problem) {
  return std::visit([](const auto& sizes) { return sizes.vocabulary; },
                    problem.sizes);
}

TrainingMemory Expected(const Problem& problem, const DeviceWork& work) {
  return std::visit([&](const auto& sizes) { return MemoryOf(sizes, work); },
                    problem.sizes);
}

// Waits until what devices hold has not changed for a while: until they can go
// on only when the caller's stage does. The while is one of looks, half a
// second on a quiet machine: where a stage waits for a processor, this thread
// does, too.
void WaitUntilTheyRest(int first_device, int end_device) {
  constexpr int kLooks = 500;
  std::vector<int64_t> held;
  for (int alike = 0; alike < kLooks; ++alike) {
    std::vector<int64_t> now;
    for (int device = first_device; device < end_device; ++device) {
      now.push_back(sim::DeviceMemoryStatistics(device).now.total);
    }
    if (now != held) alike = 0;
    held = std::move(now);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

// Activations of the devices when the last step's first microbatch has its
// loss: all stages have then done what they may do without a gradient.
class ActivationsWatch {
 public:
  ActivationsWatch(const LabLayout& layout, int steps)
      : layout_(layout),
        call_((steps - 1) * layout.microbatches / layout.replicas) {}

  // Looks at a replica's last device, on its thread, in each microbatch.
  void Look(c10::Device last) {
    if (calls_[last.index()]++ != call_) return;
    const int first = last.index() - layout_.devices + 1;
    if (first < last.index()) WaitUntilTheyRest(first, last.index());
    for (int device = first; device <= last.index(); ++device) {
      activations_[device] =
          sim::DeviceMemoryStatistics(device)
              .now.by_category[size_t(MemoryCategory::kActivations)];
    }
  }
  int64_t of(int device) const { return activations_[device]; }

 private:
  const LabLayout& layout_;
  const int call_;
  std::array<int, kMostDevices> calls_ = {};
  std::array<int64_t, kMostDevices> activations_ = {};
};

LossFunction ProblemLoss(const Problem& problem, ActivationsWatch* watch) {
  const LossFunction loss =
      problem.loss_chunk > 0
          ? ChunkedCrossEntropy("lm_head.weight", problem.loss_chunk)
          : LossFunction::OfAnyPrecision(CrossEntropy);
  return LossFunction::OfAnyPrecision(
      LossFunction(loss.names(), [=](const LossArguments& arguments) {
        LossResult result = loss(arguments);
        watch->Look(arguments.outputs.device());
        return result;
      }));
}

struct Place {
  const char* name;
  int replicas;
  int devices;       // of each
  int first_device;  // behind the problem's
};

constexpr Place kPlaces[] = {{"one device", 1, 1, 0},
                             {"1f1b of 2", 1, 2, 1},
                             {"2 replicas", 2, 1, 3},
                             {"1f1b of 4", 1, 4, 5}};

constexpr int kSteps = 2;

LabLayout ProblemLayout(const Problem& problem, const Place& place) {
  LabLayout layout;
  layout.replicas = place.replicas;
  layout.devices = place.devices;
  // More than are held at once, but on a device alone.
  layout.microbatches = place.devices == 1 ? place.replicas : 2 * place.devices;
  const auto first =
      Devices().begin() + problem.first_device + place.first_device;
  layout.device_pool.assign(first, first + place.replicas * place.devices);
  return layout;
}

LabJob ProblemJob(const Problem& problem, const LabLayout& layout,
                  ActivationsWatch* watch) {
  LabJob job;
  job.specs = [&problem] { return ProblemLayers(problem); };
  job.loss = ProblemLoss(problem, watch);
  job.batch = [&problem, &layout](int step) {
    return RandomBatch({{problem.tokens}, VocabularySize(problem), true},
                       problem.samples * layout.microbatches, 3, step);
  };
  job.steps = kSteps;
  job.change = [&problem](MeshStrategyOptions& options) {
    options.optimizer = AdamWOptions();
    if (problem.is_bf16) {
      options.ddp.mixed_precision.param_dtype = at::kBFloat16;
    }
  };
  return job;
}

DeviceWork StageWork(const Problem& problem, const LabLayout& layout,
                     int stage) {
  const int64_t layers = static_cast<int64_t>(ProblemLayers(problem).size());
  const MeshStrategyOptions options = LabOptions(layout, layers);
  const LayerRange range =
      LayerRanges(options.cuts, layers)[static_cast<size_t>(stage)];
  DeviceWork work;
  work.first_layer = range.begin;
  work.end_layer = range.end;
  work.samples = problem.samples;
  work.tokens = problem.tokens;
  work.microbatches_held = ValidateSchedule(options.schedule)
                               ->peak_activations[static_cast<size_t>(stage)];
  work.inputs_ahead = stage > 0 ? 1 : 0;
  work.element_bytes = problem.is_bf16 ? 2 : 4;
  work.attention_bytes =
      problem.is_bf16 && !HasCausalAttention(at::kBFloat16) ? 4 : 0;
  work.loss_chunk = problem.loss_chunk;
  return work;
}

struct Tally {
  int cells = 0;
  double greatest = 0;
};

void Compare(const std::string& cell, const char* category, int64_t found,
             int64_t expected, Tally* tally) {
  const double off =
      static_cast<double>(found - expected) / static_cast<double>(expected);
  std::printf("%-40s %-12s %10d held %10d by formula  %+.2f %%\n", cell.c_str(),
              category, static_cast<int>(found), static_cast<int>(expected),
              100 * off);
  EXPECT_NEAR(static_cast<double>(found), static_cast<double>(expected),
              0.05 * static_cast<double>(expected))
      << cell << " " << category;
  ++tally->cells;
  tally->greatest = std::max(tally->greatest, std::abs(off));
}

// Memory use of each device at the end, by its number.
std::vector<MemoryUse> UseAfter(const LabLayout& layout, LabJob job) {
  std::vector<MemoryUse> after(kMostDevices);
  job.end = [&](const LabRank& rank) {
    for (int i = 0; i < layout.devices; ++i) {
      const int place = rank.rank * layout.devices + i;
      const int device = layout.device_pool[static_cast<size_t>(place)].index();
      after[static_cast<size_t>(device)] =
          sim::DeviceMemoryStatistics(device).now;
    }
    return absl::OkStatus();
  };
  const auto outcome = TrainInLab(layout, job);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return after;
}

void CompareIn(const Problem& problem, const Place& place, Tally* tally) {
  const LabLayout layout = ProblemLayout(problem, place);
  ActivationsWatch watch(layout, kSteps);
  const std::vector<MemoryUse> after =
      UseAfter(layout, ProblemJob(problem, layout, &watch));
  for (size_t i = 0; i < layout.device_pool.size(); ++i) {
    const int device = layout.device_pool[i].index();
    const int stage = static_cast<int>(i) % layout.devices;
    const std::string cell =
        absl::StrCat(problem.name, ", ", place.name, ", device ", i);
    const auto held = [&](MemoryCategory category) {
      return after[static_cast<size_t>(device)]
          .by_category[static_cast<size_t>(category)];
    };
    const TrainingMemory expected =
        Expected(problem, StageWork(problem, layout, stage));
    Compare(cell, "parameters", held(MemoryCategory::kParameters),
            expected.parameters, tally);
    Compare(cell, "gradients", held(MemoryCategory::kGradients),
            expected.gradients, tally);
    Compare(cell, "optimizer", held(MemoryCategory::kOptimizer),
            expected.optimizer, tally);
    Compare(cell, "activations", watch.of(device), expected.activations, tally);
  }
}

TEST(TrainingMemoryTest, IsWhatDevicesHoldWithinFivePercent) {
  Tally tally;
  for (const Problem& problem : Problems()) {
    for (int i = 0; i < problem.places; ++i) {
      SCOPED_TRACE(absl::StrCat(problem.name, ", ", kPlaces[i].name));
      CompareIn(problem, kPlaces[i], &tally);
    }
  }
  std::printf("%d cells, at most %.2f %% off\n", tally.cells,
              100 * tally.greatest);
  // Eight problems on 1 + 2 + 2 + 4 devices, one on five; four categories.
  EXPECT_EQ(tally.cells, (8 * 9 + 5) * 4);
}

TEST(TrainingMemoryTest, OfAllLayersHasTheParametersOfTheModel) {
  for (const std::string& name : GptSizes()) {
    EXPECT_EQ(MemoryOf(*GptSize(name), DeviceWork()).parameters,
              4 * ParameterCount(*GptSize(name)))
        << name;
  }
  for (const std::string& name : LlamaSizes()) {
    EXPECT_EQ(MemoryOf(*LlamaSize(name), DeviceWork()).parameters,
              4 * ParameterCount(*LlamaSize(name)))
        << name;
  }
}

// 2205.05198's table: 34 s b h bytes a layer of 16 bits, of which two dropout
// masks have s b h each.
TEST(TrainingMemoryTest, OfABlockIsThatOfThePaperWithoutItsMasks) {
  DeviceWork block;
  block.first_layer = 2;
  block.end_layer = 3;
  block.samples = 4;
  block.tokens = 1024;
  block.element_bytes = 2;
  const GptOptions sizes = *GptSize("gpt2-xl");
  const double sbh = 4. * 1024 * static_cast<double>(sizes.width);
  const double statistics = 4. * 1024 * 4 * (4 + 25);  // floats of rows, heads
  EXPECT_EQ(static_cast<double>(MemoryOf(sizes, block).activations),
            32 * sbh + statistics);
}

// Its table 2, of the same: with tensor parallelism the inputs of norms and of
// the first products are whole, with sequence parallelism nothing is.
TEST(TrainingMemoryTest, RanksShareABlockAsInThePaper) {
  DeviceWork block;
  block.first_layer = 2;
  block.end_layer = 3;
  block.samples = 4;
  block.tokens = 1024;
  block.element_bytes = 2;
  block.tensor = 5;
  const GptOptions sizes = *GptSize("gpt2-xl");  // of 25 heads
  const double rows = 4. * 1024;
  const double sbh = rows * static_cast<double>(sizes.width);
  EXPECT_EQ(static_cast<double>(MemoryOf(sizes, block).activations),
            8 * sbh + 24 * sbh / 5 + rows * 4 * (4 + 5));
  block.tokens = 1000;  // which 5 divides
  block.sequence_parallel = true;
  const double fewer = 4. * 1000;
  EXPECT_EQ(
      static_cast<double>(MemoryOf(sizes, block).activations),
      fewer * (32 * static_cast<double>(sizes.width) / 5 + 4 * (4. / 5 + 5)));
}

TEST(TrainingMemoryTest, ReplicasShareTheOptimizersState) {
  DeviceWork work;
  const TrainingMemory whole = MemoryOf(*GptSize("gpt2"), work);
  EXPECT_EQ(whole.optimizer, 2 * whole.parameters);
  work.optimizer_shares = 4;
  const TrainingMemory shared = MemoryOf(*GptSize("gpt2"), work);
  EXPECT_EQ(shared.optimizer, whole.optimizer / 4);
  EXPECT_EQ(shared.total(), whole.total() - whole.optimizer * 3 / 4);
}

}  // namespace
}  // namespace tandem
