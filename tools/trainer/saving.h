// Saving and resuming: a job to a checkpoint, and back.

#ifndef TANDEM_TOOLS_TRAINER_SAVING_H_
#define TANDEM_TOOLS_TRAINER_SAVING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/launch/restart_count.h"
#include "datasets/distributed_sampler.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Where a job stands.
struct TrainPosition {
  int64_t step = 0;  // steps done
  SamplerState sampler;
};

// Writes a job's checkpoints, one a position at most. Not thread-safe.
class Saver {
 public:
  // `step`: that of the checkpoint that the job goes on from; -1: none. The job
  // must outlive it.
  Saver(const Job& job, int64_t step) : job_(&job), saved_step_(step) {}

  // Writes DIR/step-000000042.safetensors and points DIR/latest.safetensors at
  // it, with DIR = --save_dir; nothing where that is empty. Rank 0 writes, one
  // tensor after the other. Collective. An error leaves what was there before.
  absl::Status Save(const TrainPosition& position);

  // The last one's path; empty: none was written.
  const std::string& path() const { return path_; }

 private:
  const Job* job_;
  int64_t saved_step_;
  std::string path_;
};

// FailedPrecondition where a launcher may restart a job that begins anew in a
// folder with checkpoints: it would go on from another job's.
absl::Status CheckRestarts(const TrainOptions& options, RestartCount restarts);

// Has a job that its launcher has restarted go on from the newest checkpoint in
// --save_dir, if there is one, whatever --resume was: rank 0's word counts.
// Collective; does nothing for another job.
absl::Status ResumeAfterRestart(Job& job);

// Loads a checkpoint, a file or a folder's latest, into the job. Every rank
// calls it and reads what it has a part of. DataLoss, before anything is
// changed, when the file was damaged since it was written; InvalidArgument when
// it is of a job with another model, seed, data set, batch size or optimizer
// (all but the model do not matter under --eval_only), or when ranks have read
// files of different steps. Collective.
absl::StatusOr<TrainPosition> ResumeJob(Job& job, const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SAVING_H_
