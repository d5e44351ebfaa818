// Disk estimate of a job: how many checkpoints it will make, and how many of
// them lie there at once.

#ifndef TANDEM_TOOLS_TRAINER_DRY_RUN_DISK_ESTIMATE_H_
#define TANDEM_TOOLS_TRAINER_DRY_RUN_DISK_ESTIMATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tools/trainer/dry_run/job_plan.h"

namespace tandem {

// When checkpoints come, and which stay.
struct SavePlan {
  int64_t steps = 0;            // of the job
  int64_t steps_per_epoch = 1;  // at least 1
  int64_t done = 0;             // before it starts
  int64_t save_every = 0;       // steps; 0: none
  int64_t save_every_epochs = 0;
  int64_t keep_last = 0;  // 0: all
  int64_t keep_every = 0;
  bool keep_best = false;
  int64_t eval_every = 0;  // steps; epochs' ends are evaluated in any case
};

// Checkpoints that it makes: those of steps and of epochs' ends, and the last
// one; with `keep_best` as if each evaluation were the best so far. Two that
// fall together are one.
int64_t CheckpointCount(const SavePlan& plan);

// How many of them are there at once at most: the oldest goes when the next
// one is complete.
int64_t MostCheckpoints(const SavePlan& plan);

struct DiskEstimate {
  int64_t checkpoint = 0;  // bytes of one
  int64_t made = 0;        // how many; 0: none is saved
  int64_t at_once = 0;     // of them, at most
  int64_t free = -1;  // bytes where --save_dir is, or will be; -1: not known
};

DiskEstimate EstimateDisk(const JobPlan& plan);

// FailedPrecondition where they will not fit.
absl::Status CheckDisk(const DiskEstimate& estimate,
                       const TrainOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_DRY_RUN_DISK_ESTIMATE_H_
