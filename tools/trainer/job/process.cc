#include "tools/trainer/job/process.h"

#include <glog/logging.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/autotune/choice_file.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "core/program/process.h"
#include "core/run/flight_dumps.h"
#include "tools/trainer/settings/pipeline_settings.h"
#include "tools/trainer/settings/settings_agreement.h"

namespace tandem {
namespace {

absl::StatusOr<int> ThreadShare(const TrainOptions& options,
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
  TANDEM_ASSIGN_OR_RETURN(const int threads, ThreadShare(options, launch));
  ConfigureProcess(threads);
  return threads;
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const TrainOptions& options, const Launch& launch) {
  FlightRecorder::OfProcess().SetCapacity(
      static_cast<size_t>(options.flight_entries));
  CommunicatorOptions communication;
  communication.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  communication.backend = options.backend;
  communication.stages_on_host = options.devices.share_devices;
  communication.interface = options.interface;
  communication.straggler_warning = std::chrono::milliseconds(
      static_cast<int64_t>(options.straggler_warning * 1e3));
  TANDEM_ASSIGN_OR_RETURN(communication.settings, SettingsOfJob());
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> world,
                          Communicator::ForLaunch(launch, communication));
  TANDEM_RETURN_IF_ERROR(StartFlightDumps(*world, options.flight_dir));
  return world;
}

std::unique_ptr<JobKernels> KernelsOf(const TrainOptions& options,
                                      Communicator& world) {
  if (!MeasuresKernels(options)) return nullptr;
  const std::string cache =
      options.kernel_cache.empty()
          ? ChoiceFile::DefaultPath(Environment::OfProcess())
          : options.kernel_cache;
  absl::StatusOr<std::unique_ptr<JobKernels>> kernels =
      JobKernels::Measure(cache, world);
  if (kernels.ok()) return *std::move(kernels);
  // Without a home (a service's, a sandbox's) nothing was to be expected.
  if (cache.empty() && options.kernels == "auto") return nullptr;
  LOG(WARNING) << "kernels are chosen by rule, not by measurement: "
               << kernels.status().message() << " (--kernel_cache)";
  return nullptr;
}

}  // namespace tandem
