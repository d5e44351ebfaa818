#include "tools/trainer/job/process.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "core/autotune/choice_file.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "core/program/command_line.h"
#include "core/program/process.h"
#include "core/run/flight_dumps.h"
#include "parallel/schedule/choice.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

constexpr char kPlace[] = "says where this process stands, or where ranks meet";

constexpr PerRankFlag kPerRankFlags[] = {
    {"data_dir",
     "hosts may keep their copies in different places; how many samples there "
     "are is compared"},
    {"dist_url", kPlace},
    {"flight_dir", "each rank writes a file of its own"},
    {"interface", "hosts may name their network interfaces differently"},
    {"intra_op_threads",
     "hosts may have different numbers of cores; compared with --reproducible"},
    {"job_secret_file",
     "hosts may keep their copies in different places; who has another secret "
     "does not reach the store"},
    {"kernel_cache", "hosts keep their own; rank 0's choices are all ranks'"},
    {"local_rank", kPlace},
    {"log_dir", "each rank writes a log file of its own"},
    {"master_addr", kPlace},
    {"master_port", kPlace},
    {"metrics_file", "rank 0 alone writes it"},
    {"nnodes", kPlace},
    {"node_rank", kPlace},
    {"nproc_per_node", kPlace},
    {"prometheus_file", "rank 0 alone writes it"},
    {"rank", kPlace},
    {"report", "rank 0 alone writes it"},
    {"workers", "batches are the same, however many threads prepare them"},
    {"world_size", kPlace},
};

bool MayDiffer(const std::string& flag) {
  return std::any_of(
      std::begin(kPerRankFlags), std::end(kPerRankFlags),
      [&](const PerRankFlag& each) { return flag == each.name; });
}

// An empty text, of a flag that has another default, is one that was given.
bool IsGiven(const std::string& flag, const std::string& value) {
  return !value.empty() ||
         !absl::FindCommandLineFlag(flag)->DefaultValue().empty();
}

// A file's contents instead of its path.
absl::Status DescribeSchedule(NamedValues& settings) {
  const auto found = settings.find("--schedule");
  if (found == settings.end() || !IsScheduleFile(found->second)) {
    return absl::OkStatus();
  }
  std::string& schedule = found->second;
  TANDEM_ASSIGN_OR_RETURN(const Schedule read, ReadScheduleFile(schedule));
  schedule = "a file";
  for (const auto& [name, value] : ScheduleValues(read)) {
    settings[absl::StrCat("--schedule's ", name)] = value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const PerRankFlag> PerRankFlags() { return kPerRankFlags; }

absl::StatusOr<NamedValues> JobSettings() {
  const std::map<std::string, std::string> flags = FlagValues();
  NamedValues settings;
  for (const auto& [flag, value] : flags) {
    if (MayDiffer(flag) || !IsGiven(flag, value)) continue;
    settings[absl::StrCat("--", flag)] = value;
  }
  if (flags.at("reproducible") == "true") {
    settings["--intra_op_threads"] = flags.at("intra_op_threads");
  }
  TANDEM_RETURN_IF_ERROR(DescribeSchedule(settings));
  return settings;
}

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
  if (IsPipeline(options.pipeline, MakePipelineContext(options)) ||
      IsDataParallel(MakePipelineContext(options))) {
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
  TANDEM_ASSIGN_OR_RETURN(communication.settings, JobSettings());
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> world,
                          Communicator::ForLaunch(launch, communication));
  TANDEM_RETURN_IF_ERROR(StartFlightDumps(*world, options.flight_dir));
  return world;
}

std::unique_ptr<JobKernels> MakeJobKernels(const TrainOptions& options,
                                           Communicator& world) {
  if (!MeasuresKernels(options)) return nullptr;
  const std::string cache =
      options.kernel_cache.empty()
          ? ChoiceFile::DefaultPath(Environment::OfProcess())
          : options.kernel_cache;
  absl::StatusOr<std::unique_ptr<JobKernels>> kernels =
      JobKernels::Measure(cache, world);
  if (kernels.ok()) return *std::move(kernels);
  // A process without a home directory (a service, a sandbox) has no cache.
  if (cache.empty() && options.kernels == "auto") return nullptr;
  LOG(WARNING) << "kernels are chosen by rule, not by measurement: "
               << kernels.status().message() << " (--kernel_cache)";
  return nullptr;
}

}  // namespace tandem
