// Saving and resuming: a job to a checkpoint, and back.

#ifndef TANDEM_TOOLS_TRAINER_SAVING_H_
#define TANDEM_TOOLS_TRAINER_SAVING_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/distributed_sampler.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// Where a job stands.
struct TrainPosition {
  int64_t step = 0;  // steps done
  SamplerState sampler;
};

// Writes DIR/step-000000042.safetensors and points DIR/latest.safetensors at
// it, with DIR = --save_dir. Rank 0 writes, one tensor after the other. Gives
// the file's path. Collective. An error leaves what was there before.
absl::StatusOr<std::string> SaveJob(const Job& job,
                                    const TrainPosition& position);

// Loads a checkpoint, a file or a folder's latest, into the job. Every rank
// calls it and reads what it has a part of. DataLoss, before anything is
// changed, when the file was damaged since it was written; InvalidArgument when
// it is of a job with another model, seed, data set, batch size or optimizer
// (all but the model do not matter under --eval_only), or when ranks have read
// files of different steps. Collective.
absl::StatusOr<TrainPosition> ResumeJob(Job& job, const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SAVING_H_
