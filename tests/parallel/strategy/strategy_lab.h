// Strategy laboratory: a small training in any layout of the mesh, and what it
// comes to, to be compared with another's.

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_STRATEGY_LAB_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_STRATEGY_LAB_H_

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "core/testing/thread_ranks.h"
#include "parallel/schedule/activation_checkpointing.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

// Rank = (replica * pipe + place along the pipeline) * tensor + part.
struct LabLayout {
  std::string name;
  std::string schedule = "1f1b";  // "sequential", or as MakeSchedule has them
  int replicas = 1;
  int pipe = 1;     // ranks of a replica
  int devices = 1;  // of a rank
  int chunks = 1;
  int microbatches = 12;  // of the whole batch; replicas share them
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
  int weight_gradient_batch = 1;
  // Rank r has `devices` of them, from r * devices on. Empty: they are CPUs, or
  // simulated devices where the backend is for those.
  std::vector<c10::Device> device_pool = {};
  std::string backend = TestBackend();
  bool group_of_one = false;  // one rank has a communicator too, not null
  // Ranks may have the same device: what goes between them goes by the host.
  bool shares_devices = false;
  int tensor = 1;  // ranks that share each layer

  int ranks() const { return replicas * pipe * tensor; }
  int devices_of_replica() const { return pipe * devices; }
};

// Layouts by their columns' names, "zb_v 2x1x2x2 always, gpipe 3x1x1":
// schedule, replicas x ranks of each x devices of each x chunks of each (1 if
// it is not said), and "always" or "except_last" for activation checkpointing.
std::vector<LabLayout> LabLayouts(absl::string_view columns,
                                  int microbatches = 12);

// The layout of one column.
LabLayout LabLayoutNamed(absl::string_view column, int microbatches = 12);

// One replica of so many stages, cut over that many ranks.
LabLayout LabPipeline(int stages, int ranks = 1, int microbatches = 4);

// Replicas on a rank each, with so many microbatches, in one piece, or cut over
// two simulated devices.
LabLayout LabReplicas(int ranks, int microbatches_of_each, bool cut);

// The calling rank's options, for a model of so many layers, cut uniformly.
MeshStrategyOptions LabOptions(const LabLayout& layout, int64_t layers);

struct LabRank {
  Communicator* world;  // may be null where there is one rank
  int rank;
  int replica;
  Strategy* strategy;
};

// Functions are called on the ranks' threads, one for each.
struct LabJob {
  std::function<LayerSpecs()> specs;
  LossFunction loss;
  std::function<void(MeshStrategyOptions& options)> change;  // null: does not
  // Null: a mesh strategy of all that is above.
  std::function<absl::StatusOr<std::unique_ptr<Strategy>>(Communicator* world)>
      make;

  // What TrainInLab needs besides. A step's batch, of which replicas have equal
  // shares; or instead each one's own.
  std::function<Batch(int step)> batch;
  std::function<Batch(int step, int replica)> share;
  // Ranks get it without the tensors that they have no use for.
  bool sparing = false;
  int steps = 3;
  double rate = 0.1;
  int test =
      -1;  // the number of a batch that is evaluated at the end; -1: none
  // Before the steps, instead of TrainStep, and after them. Null: nothing else.
  std::function<absl::Status(const LabRank& rank)> begin;
  std::function<absl::StatusOr<Score>(const LabRank& rank, const Batch& batch,
                                      int step)>
      step;
  std::function<absl::Status(const LabRank& rank)> end;
};

// Makes the job's strategy on every rank, and calls `work` with it.
absl::Status OnLabRanks(
    const LabLayout& layout, const LabJob& job,
    const std::function<absl::Status(const LabRank&)>& work);

// Copies, on the CPU.
struct LabOutcome {
  std::vector<Score> scores;  // by step, as rank 0 has them
  Score evaluation;           // of all ranks
  TensorsByName model;        // parameters and buffers, whole
  TensorsByName optimizer;
  std::vector<TensorsByName> held;  // by rank: all that it has
};

absl::StatusOr<LabOutcome> TrainInLab(const LabLayout& layout,
                                      const LabJob& job);

TensorsByName CopiesOf(const NamedTensors& tensors);

// Has the strategy go on from what others came to in so many steps.
absl::Status Resume(Strategy& strategy, const LabOutcome& from, int steps);

// `batch` without what the strategy has no use for on this rank.
Batch TakenBy(const Strategy& strategy, Batch batch);

// How far apart two outcomes may be.
struct LabTolerance {
  double loss = 1e-5;
  double relative = 1e-4;
  double absolute = 1e-6;
};

void ExpectSameBits(const TensorsByName& found, const TensorsByName& expected);
// Scores, model and optimizer state, but not what which rank holds.
void ExpectSameBits(const absl::StatusOr<LabOutcome>& found,
                    const absl::StatusOr<LabOutcome>& expected);
void ExpectClose(const absl::StatusOr<LabOutcome>& found,
                 const absl::StatusOr<LabOutcome>& expected,
                 const LabTolerance& tolerance = {});

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_STRATEGY_LAB_H_
