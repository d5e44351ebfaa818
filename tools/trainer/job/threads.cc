#include "tools/trainer/job/threads.h"

#include "core/base/status_macros.h"
#include "core/program/process.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

absl::StatusOr<int> ThreadsOf(const TrainOptions& options,
                              const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(
      int requested,
      RequestedThreads(options.intra_op_threads, kMostIntraOpThreads));
  // The number of threads shows in the bits of sums.
  if (options.pipeline.reproducible && options.intra_op_threads == 0) {
    requested = 1;
  }
  CoreSharing sharing;
  sharing.ranks = launch.local_world_size;
  // A rank's devices work at once in a pipeline, and when each has a replica.
  if (IsPipeline(options.pipeline, SurroundingsOf(options)) ||
      IsDataParallel(SurroundingsOf(options))) {
    sharing.threads_of_rank =
        static_cast<int>(options.devices.devices_per_rank);
  }
  sharing.bound = StartsTasks(launch.launcher) && IsBoundToCores();
  return IntraOpThreads(requested, sharing);
}

}  // namespace

absl::StatusOr<int> TakeThreads(const TrainOptions& options,
                                const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const int threads, ThreadsOf(options, launch));
  ConfigureProcess(threads);
  return threads;
}

}  // namespace tandem
