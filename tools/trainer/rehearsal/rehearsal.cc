#include "tools/trainer/rehearsal/rehearsal.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"
#include "core/device/device.h"
#include "core/meta/meta_scope.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/sim/streams/limits.h"
#include "parallel/schedule/prediction.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/job/strategy.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/job/world.h"

namespace tandem {
namespace {

// The host's stand-in, on which layers are made before they are moved.
constexpr int kHostPlace = sim::kMostDevices - 1;

absl::Status MakeDevices(const RehearsalSettings& settings,
                         const TrainOptions& options) {
  SimOptions imagined;
  imagined.devices = sim::kMostDevices;
  imagined.imagined = true;
  TANDEM_RETURN_IF_ERROR(EnableSim(imagined));
  SetCurrentDevice(SimDevice(0));
  sim::SetDeviceSpeed({options.peak_tflops * 1e12, settings.memory_bandwidth});
  return absl::OkStatus();
}

// Layers whose parameters are shapes.
LayerSpecs WithoutValues(LayerSpecs specs) {
  for (LayerSpec& spec : specs) {
    if (spec.make) {
      spec.make = [make = spec.make](uint64_t seed) {
        const MetaScope no_values(SimDevice(kHostPlace));
        return make(seed);
      };
    }
    if (spec.make_tied) {
      spec.make_tied = [make = spec.make_tied](uint64_t seed,
                                               const NamedTensors& shared) {
        const MetaScope no_values(SimDevice(kHostPlace));
        return make(seed, shared);
      };
    }
  }
  return specs;
}

absl::StatusOr<Batch> FirstBatch(const Dataset& data, int64_t size) {
  std::vector<int64_t> indices(
      static_cast<size_t>(std::min(size, data.size())));
  std::iota(indices.begin(), indices.end(), 0);
  return data.Get(indices);
}

absl::Status TrainStep(Strategy& strategy, const Batch& batch,
                       const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(
      strategy.SubmitStep(batch, ResolvedLearningRate(options)));
  return strategy.TakeScores().status();
}

// Each device's work of a step, shared out evenly among its stages'
// microbatches.
absl::Status PredictStep(const Schedule& schedule, RehearsedJob* job) {
  ScheduleCosts costs;
  double rest = 0;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto device = static_cast<size_t>(DeviceOfStage(schedule, stage));
    const sim::DeviceWork& work = job->devices[device].work;
    const double parts = static_cast<double>(schedule.microbatches) *
                         static_cast<double>(schedule.stages_of[device].size());
    costs.stages.push_back({work.forward.seconds / parts,
                            work.backward.seconds / parts / 2,
                            work.backward.seconds / parts / 2});
    rest = std::max(rest, work.rest.seconds);
    job->forward = std::max(job->forward, work.forward.seconds);
  }
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction predicted,
                          PredictSchedule(schedule, costs));
  job->step = predicted.step + rest;
  job->bubble = predicted.bubble;
  return absl::OkStatus();
}

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.4g ms", seconds * 1e3);
}

void Print(const RehearsedJob& job, const TrainOptions& options) {
  std::printf("rehearsal without values: nothing is computed or allocated\n");
  if (!job.partition.empty()) std::printf("%s\n", job.partition.c_str());
  double flops = 0;
  for (const RehearsedDevice& device : job.devices) {
    const sim::DeviceWork& work = device.work;
    flops += work.forward.flops + work.backward.flops;
    std::printf("  peak on %-6s %s: %s\n", device.name.c_str(),
                FormatBytes(device.peak.total).c_str(),
                DescribeUse(device.peak).c_str());
    std::printf(
        "    a step     %.4g TFLOP; forward %s, backward %s, update %s\n",
        (work.forward.flops + work.backward.flops) / 1e12,
        Milliseconds(work.forward.seconds).c_str(),
        Milliseconds(work.backward.seconds).c_str(),
        Milliseconds(work.rest.seconds).c_str());
  }
  if (job.step <= 0) {
    std::printf(
        "  no times: give --peak_tflops, --sim_memory_bandwidth or both\n");
    return;
  }
  std::printf(
      "  a step would take %s (bubble %.1f%%, without communication): %.4g "
      "samples/s, %.4g TFLOP/s\n",
      Milliseconds(job.step).c_str(), 100 * job.bubble,
      static_cast<double>(options.batch_size) / job.step,
      flops / job.step / 1e12);
}

absl::Status CheckFits(const RehearsedJob& job, const TrainOptions& options) {
  const auto fullest = std::max_element(
      job.devices.begin(), job.devices.end(),
      [](const auto& a, const auto& b) { return a.peak.total < b.peak.total; });
  if (options.devices.device_memory.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const int64_t there,
                          ParseByteSize(options.devices.device_memory));
  if (fullest->peak.total <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "it does not fit: ", fullest->name, " would hold ",
      FormatBytes(fullest->peak.total), " (", DescribeUse(fullest->peak),
      "), of --device_memory=", options.devices.device_memory,
      "; cut the model over more devices, or take smaller microbatches"));
}

}  // namespace

absl::Status CheckRehearsal(const RehearsalSettings& settings,
                            const TrainOptions& options, int world_size) {
  const auto refuse = [](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--fake_weights ", why));
  };
  if (settings.memory_bandwidth < 0) {
    return absl::InvalidArgumentError(
        "--sim_memory_bandwidth must not be negative");
  }
  if (!settings.fake_weights) {
    return settings.memory_bandwidth == 0
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     "--sim_memory_bandwidth is for --fake_weights");
  }
  const DeviceSettings& devices = options.devices;
  if (devices.device != "sim") {
    return refuse(absl::StrCat("is for simulated devices: set --device=sim, ",
                               "not ", devices.device));
  }
  if (devices.sim_async) {
    return refuse("computes nothing that --sim_async could queue");
  }
  if (devices.share_devices) {
    return refuse("gives each place a device: leave out --share_devices");
  }
  if (!options.init_from.empty() || !options.resume.empty()) {
    return refuse(
        absl::StrCat("has no values: leave out ",
                     options.resume.empty() ? "--init_from" : "--resume"));
  }
  if (options.eval_only) return refuse("rehearses training: no --eval_only");
  if (world_size != 1) {
    return refuse(absl::StrCat(
        "rehearses one rank, and ", world_size,
        " were asked for: its devices are the pipeline's, so give "
        "--devices_per_rank in the place of --pipe and --nproc_per_node"));
  }
  if (devices.devices_per_rank > kHostPlace) {
    return refuse(absl::StrCat("has ", kHostPlace, " devices at most, but ",
                               "--devices_per_rank=", devices.devices_per_rank,
                               " was given"));
  }
  if (options.pipeline.balance == "profile") {
    return refuse("cannot measure layers for --balance=profile");
  }
  return absl::OkStatus();
}

absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch) {
  TANDEM_RETURN_IF_ERROR(MakeDevices(settings, options));
  std::vector<c10::Device> devices;
  for (int i = 0; i < options.devices.devices_per_rank; ++i) {
    devices.push_back(SimDevice(i));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto world, Connect(options, launch));
  TANDEM_ASSIGN_OR_RETURN(const JobData data, OpenData(options, *world));
  TANDEM_ASSIGN_OR_RETURN(const auto transformer, TransformerOf(options));
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs layers,
                          LayersOf(options, transformer, *data.train));
  layers = WithoutValues(std::move(layers));
  TANDEM_ASSIGN_OR_RETURN(
      const JobPartition partition,
      PartitionOf(options, layers, devices, *data.train, *world));
  TANDEM_ASSIGN_OR_RETURN(
      const auto strategy,
      MakeStrategy(options, layers, partition, devices, *world));
  TANDEM_ASSIGN_OR_RETURN(const Batch batch,
                          FirstBatch(*data.train, options.batch_size));
  TANDEM_RETURN_IF_ERROR(TrainStep(*strategy, batch, options));
  for (const c10::Device& each : devices) sim::ResetWork(each.index());
  TANDEM_RETURN_IF_ERROR(TrainStep(*strategy, batch, options));
  RehearsedJob job;
  job.partition = partition.table;
  for (const c10::Device& each : devices) {
    job.devices.push_back({"", {}, sim::WorkOf(each.index())});
  }
  TANDEM_RETURN_IF_ERROR(PredictStep(partition.schedule, &job));
  TANDEM_ASSIGN_OR_RETURN(const Batch test,
                          FirstBatch(*data.test, options.batch_size));
  TANDEM_RETURN_IF_ERROR(strategy->Evaluate(test).status());
  for (size_t i = 0; i < devices.size(); ++i) {
    job.devices[i].name = absl::StrCat("sim:", i);
    job.devices[i].peak = sim::BooksOf(static_cast<int>(i)).peak;
  }
  return job;
}

absl::Status Rehearse(const RehearsalSettings& settings,
                      const TrainOptions& options, const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const RehearsedJob job,
                          RehearseJob(settings, options, launch));
  Print(job, options);
  return CheckFits(job, options);
}

}  // namespace tandem
