// Replacement of replicas: a job that goes on without ranks that die, and takes
// in those that come back (--replace_replicas), as one rank sees it.

#ifndef TANDEM_TOOLS_TRAINER_REPLACEMENT_REPLACEMENT_H_
#define TANDEM_TOOLS_TRAINER_REPLACEMENT_REPLACEMENT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/launch/launch.h"
#include "core/replace/job_member.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/replacement/kept_state.h"

namespace tandem {

// Whether a job that was launched so can have its ranks replaced, where
// --replace_replicas asks for that. `first`: any rank's.
absl::Status CheckReplacement(const TrainOptions& options, const Launch& first);

// From one change of ranks to the next a job is set up and trained as any
// other, of as many replicas as are whole: a generation
// (core/replace/job_member.h). In between each rank keeps its state; all go on
// from the state of the most steps, each rank from that of one which has the
// same of the model. A step changes parameters only after all of its
// collectives, so each rank's state is that of a whole number of steps;
// buffers, which forward passes change, are put back.
//
// Not thread-safe.
class Replacement {
 public:
  // Takes part in the job. Null: it has ended meanwhile.
  static absl::StatusOr<std::unique_ptr<Replacement>> Enter(
      const TrainOptions& options, const Launch& launch);

  // This generation's place, and who is in it.
  Launch LaunchNow() const { return member_.LaunchNow(); }
  PresentRanks RanksNow() const;

  // Before the first step of a generation. In the first one the job stands as
  // it was set up; in a later one it is put into the state of the one that has
  // done the most steps. Lines for a person. Collective.
  absl::StatusOr<std::vector<std::string>> Begin(Job& job, JobStand* stand);

  // Around each step, and all else that may fail because a rank dies.
  absl::Status BeginStep(const Job& job);
  void EndStep() { buffers_.clear(); }
  // Keeps the state of a job whose generation has ended, without what a step
  // that has not ended did to buffers; and, where nothing but the others' word
  // was missing in that step, the state that it leads to, at `next`.
  absl::Status Keep(const Job& job, const JobStand& stand,
                    const JobStand& next);

  // For one rank, which tells the others: whether a replica waits to be let in.
  absl::StatusOr<bool> HasWaitingReplica() {
    return member_.HasWaitingReplica();
  }
  // All have agreed to end the generation, to let others in.
  void EndForAdmission() { admits_ = true; }

  // After a generation ended so, or with `error`: goes on in the next one. The
  // error itself where it is this rank's own, or no other rank's death is known
  // soon. False: the job has ended meanwhile. Nothing of the job but this
  // lives.
  absl::StatusOr<bool> GoOn(const absl::Status& error);
  // The job has done all it was to do.
  absl::Status Finish() { return member_.NoteFinished(); }

 private:
  Replacement(JobMember member, int launched)
      : member_(std::move(member)), launched_(launched) {}

  std::vector<std::string> Describe(const Job& job, int64_t step) const;
  // What this rank has of the state that all go on from.
  const KeptState& Mine() const;

  JobMember member_;
  const int launched_;
  bool admits_ = false;
  std::optional<KeptState> kept_;
  std::optional<KeptState> kept_next_;  // a step later
  // Buffers of the step under way: the live ones, and copies from before it.
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

// Sets a job up and trains it, until its end or that of its generation.
using RunGeneration = std::function<absl::Status(Job& job, Replacement*)>;

// Calls `run` with a job of each generation that this rank takes part in: as
// `first`, which has options and launch alone, but for those who are there. The
// devices that the first one takes, the others have.
absl::Status RunGenerations(Job first, const RunGeneration& run);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPLACEMENT_REPLACEMENT_H_
