// What activation checkpointing saves and costs, on simulated devices whose
// memory is counted: a pipeline of two stages, one thread each.
//
//   bazel run //tools/bench:checkpointing
//
// A row a way to checkpoint:
//   activations  most bytes in use on a device in a step, beyond what is in use
//                between steps (of the two devices the one with more)
//   step         median of the steps
//   processor    the same of the processor time of all threads, which other
//                work on the machine changes little, and how much more it is
//                than without
// Losses of all rows must be the same, bit for bit.

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "core/random/random.h"
#include "core/sim/sim.h"
#include "models/classification_loss.h"
#include "models/transformer/gpt.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/bench/measure/median.h"

ABSL_FLAG(int, steps, 7, "measured steps, after two that are not");
ABSL_FLAG(int, layers, 12, "blocks of the model");
ABSL_FLAG(int, width, 128, "its width");
ABSL_FLAG(int, microbatches, 4, "of a step");
ABSL_FLAG(int, microbatch_size, 4, "sequences of 128 tokens");

namespace tandem {
namespace {

constexpr int kStages = 2;
constexpr int64_t kTokens = 128;
constexpr int64_t kVocabulary = 256;

struct Way {
  const char* name;
  SelectiveCheckpointing selective;
  ActivationCheckpointing stages = ActivationCheckpointing::kNever;
};

std::vector<Way> Ways() {
  return {
      {"none", {}},
      {"--checkpoint_layers='h\\.\\d*[02468]$'", {"h\\.\\d*[02468]$", 0}},
      {"--checkpoint_layers='h\\.'", {"h\\.", 0}},
      {"--checkpoint_every=1", {"", 1}},
      {"--checkpoint_every=2", {"", 2}},
      {"--checkpoint_every=3", {"", 3}},
      {"--checkpoint_activations=always", {}, ActivationCheckpointing::kAlways},
      {"both: always, and --checkpoint_every=2",
       {"", 2},
       ActivationCheckpointing::kAlways}};
}

LayerSpecs Model() {
  GptOptions gpt;
  gpt.layers = absl::GetFlag(FLAGS_layers);
  gpt.width = absl::GetFlag(FLAGS_width);
  return *Gpt(gpt);
}

absl::StatusOr<std::unique_ptr<MeshStrategy>> Make(const Way& way) {
  const LayerSpecs specs = Model();
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(
      options.schedule,
      MakeSchedule("1f1b", {kStages, 1, absl::GetFlag(FLAGS_microbatches)}));
  TANDEM_ASSIGN_OR_RETURN(
      options.cuts, UniformCuts(static_cast<int64_t>(specs.size()), kStages));
  options.devices = {SimDevice(0), SimDevice(1)};
  options.pipeline.selective = way.selective;
  options.pipeline.checkpointing = way.stages;
  return MeshStrategy::Create(specs, CrossEntropy, options, nullptr);
}

Batch BatchOf(int step) {
  const int64_t size =
      absl::GetFlag(FLAGS_microbatches) * absl::GetFlag(FLAGS_microbatch_size);
  const auto tokens = [&](const char* name) {
    return at::randint(kVocabulary, {size, kTokens},
                       GeneratorFor(static_cast<uint64_t>(step), name),
                       at::kLong);
  };
  return {tokens("inputs"), tokens("targets"), size};
}

struct Outcome {
  double seconds = 0;
  double processor_seconds = 0;
  int64_t bytes = 0;
  double loss = 0;
};

absl::StatusOr<Outcome> Measure(const Way& way) {
  TANDEM_ASSIGN_OR_RETURN(const auto strategy, Make(way));
  std::vector<double> seconds, processor_seconds;
  Outcome outcome;
  for (int step = 0; step < absl::GetFlag(FLAGS_steps) + 2; ++step) {
    const Batch batch = BatchOf(step);
    int64_t before[kStages];
    for (int i = 0; i < kStages; ++i) {
      before[i] = sim::BooksOf(i).now.total;
      sim::ResetPeak(i);
    }
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t clock = std::clock();
    TANDEM_ASSIGN_OR_RETURN(const Score score, strategy->TrainStep(batch, 0.1));
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - start;
    outcome.loss = score.loss();
    if (step < 2) continue;
    seconds.push_back(took.count());
    processor_seconds.push_back(static_cast<double>(std::clock() - clock) /
                                CLOCKS_PER_SEC);
    for (int i = 0; i < kStages; ++i) {
      outcome.bytes =
          std::max(outcome.bytes, sim::BooksOf(i).peak.total - before[i]);
    }
  }
  outcome.seconds = Median(seconds);
  outcome.processor_seconds = Median(processor_seconds);
  return outcome;
}

absl::Status Run() {
  TANDEM_RETURN_IF_ERROR(EnableSim());
  std::vector<std::vector<std::string>> rows = {
      {"way", "activations", "of none", "step", "processor", "more", "loss"}};
  Outcome none;
  for (const Way& way : Ways()) {
    TANDEM_ASSIGN_OR_RETURN(const Outcome found, Measure(way));
    if (rows.size() == 1) none = found;
    CHECK_EQ(found.loss, none.loss) << way.name << " trains something else";
    rows.push_back(
        {way.name,
         absl::StrFormat("%.1f MiB",
                         static_cast<double>(found.bytes) / (1 << 20)),
         absl::StrFormat("%.0f %%", 100. * static_cast<double>(found.bytes) /
                                        static_cast<double>(none.bytes)),
         absl::StrFormat("%.0f ms", 1e3 * found.seconds),
         absl::StrFormat("%.0f ms", 1e3 * found.processor_seconds),
         absl::StrFormat(
             "%+.0f %%",
             100 * (found.processor_seconds / none.processor_seconds - 1)),
         absl::StrFormat("%.9g", found.loss)});
  }
  std::printf("%s", TextTable(rows).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  absl::ParseCommandLine(argc, argv);
  at::set_num_threads(1);
  const absl::Status status = tandem::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
