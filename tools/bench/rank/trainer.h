// Tandem's trainer of one rank: its part of a workload, under one setting.
//
// Cuts by a profile of the layers, as the trainer's --balance=profile makes
// them.

#ifndef TANDEM_TOOLS_BENCH_RANK_TRAINER_H_
#define TANDEM_TOOLS_BENCH_RANK_TRAINER_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/instrument/trace.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/balance.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/schedule.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/bench/case/case.h"
#include "tools/bench/rank/inputs.h"

namespace tandem {

// The profile of the first of the batch's microbatches, which is as large as
// any, with backward in two parts where the schedule has it so.
absl::StatusOr<ModelProfile> ProfileMicrobatch(const LayerList& layers,
                                               const Batch& batch,
                                               const Schedule& schedule);

// Between devices of this host.
absl::StatusOr<SendingCost> MeasureSending();

absl::StatusOr<Cuts> CutByProfile(const LayerSpecs& specs,
                                  const ModelProfile& profile,
                                  const Schedule& schedule,
                                  const SendingCost& sending);

// The place of one rank.
struct RankPlace {
  std::vector<int> cores;         // a device for each, bound to it; -1: to none
  int pipe = 1;                   // ranks of a replica
  Communicator* world = nullptr;  // null: one rank
  // Device of a model in one piece; stages are on the CPU's cores.
  c10::Device device = c10::Device(c10::kCPU);
};

// Times of a step's gradients, in milliseconds.
struct CommunicationTimes {
  double comm_ms = 0;     // while a bucket was on its way
  double exposed_ms = 0;  // of that, without computation beside it
};

absl::StatusOr<Schedule> PlacedSchedule(const Setting& setting,
                                        const RankPlace& place);

// A setting with a recipe is trained in one piece, any other in stages. Not
// thread-safe.
class Trainer {
 public:
  // `inputs` and the place's communicator must outlive it. Begins from their
  // state. Collective.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(
      const Inputs& inputs, const Setting& setting, const RankPlace& place);

  // Forward, backward and optimizer, on the next batch. Collective.
  absl::StatusOr<Score> Step();
  // On another device than the CPU scores are read at the end, as peers' are.
  absl::Status Steps(int64_t count);
  // A step, and what was under way when.
  absl::StatusOr<std::vector<TraceEvent>> TraceStep();

  // Cuts between stages, none where the model is in one piece.
  const Cuts& cuts() const { return cuts_; }
  // Numbers in this rank's parameters.
  int64_t CountParameters() const;
  // Means so far, as the reducer's logging has them; zeros where it has none.
  CommunicationTimes MeanCommunication() const;

 private:
  explicit Trainer(const Inputs& inputs) : inputs_(inputs) {}

  absl::Status Make(const Setting& setting, const RankPlace& place);
  const Batch& NextBatch();
  absl::Status SubmitSteps(int64_t count);

  const Inputs& inputs_;
  Cuts cuts_;
  std::unique_ptr<MeshStrategy> strategy_;
  size_t next_ = 0;
  bool on_cpu_ = true;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_TRAINER_H_
