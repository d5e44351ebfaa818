#include "tools/trainer/rehearsal/rehearsal.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/device/device.h"
#include "core/meta/meta_scope.h"
#include "core/model/layer_maker.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/sim/streams/limits.h"
#include "parallel/schedule/prediction.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/job/strategy.h"
#include "tools/trainer/job/threads.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/job/world.h"

namespace tandem {
namespace {

// Without --device_memory's cap: what would be beyond it is told, too.
absl::StatusOr<std::vector<c10::Device>> MakeDevices(
    const RehearsalSettings& settings, const TrainOptions& options) {
  SimOptions imagined;
  imagined.devices = sim::kMostDevices;
  imagined.imagined = true;
  TANDEM_RETURN_IF_ERROR(EnableSim(imagined));
  sim::SetDeviceSpeed({options.peak_tflops * 1e12, settings.memory_bandwidth});
  std::vector<c10::Device> devices;
  for (int i = 0; i < options.devices.devices_per_rank; ++i) {
    devices.push_back(SimDevice(i));
  }
  SetCurrentDevice(devices.front());
  return devices;
}

c10::Device HostsStandIn() { return SimDevice(kMostRehearsedDevices); }

// Layers whose parameters are shapes.
LayerSpecs WithoutValues(LayerSpecs specs) {
  const auto without_values = [](auto make) {
    const MetaScope no_values(HostsStandIn());
    return make();
  };
  return MadeThrough(without_values, std::move(specs));
}

// A job that has been set up: what outlives its strategy stands before it.
struct SetUpJob {
  std::vector<c10::Device> devices;
  std::unique_ptr<Communicator> world;
  JobData data;
  JobPartition partition;
  std::unique_ptr<Strategy> strategy;
};

absl::StatusOr<SetUpJob> SetUp(const RehearsalSettings& settings,
                               const TrainOptions& options,
                               const Launch& launch) {
  SetUpJob job;
  TANDEM_RETURN_IF_ERROR(TakeThreads(options, launch).status());
  TANDEM_ASSIGN_OR_RETURN(job.devices, MakeDevices(settings, options));
  TANDEM_ASSIGN_OR_RETURN(job.world, Connect(options, launch));
  TANDEM_ASSIGN_OR_RETURN(job.data, OpenData(options, *job.world));
  TANDEM_ASSIGN_OR_RETURN(const std::optional<Transformer> transformer,
                          TransformerOf(options));
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs layers,
                          LayersOf(options, transformer, *job.data.train));
  layers = WithoutValues(std::move(layers));
  TANDEM_ASSIGN_OR_RETURN(
      job.partition,
      PartitionOf(options, layers, job.devices, *job.data.train, *job.world));
  TANDEM_ASSIGN_OR_RETURN(
      job.strategy,
      MakeStrategy(options, layers, job.partition, job.devices, *job.world));
  return job;
}

absl::StatusOr<Batch> FirstBatch(const Dataset& data, int64_t size) {
  std::vector<int64_t> indices(
      static_cast<size_t>(std::min(size, data.size())));
  std::iota(indices.begin(), indices.end(), 0);
  return data.Get(indices);
}

// One that is reported (--log_every), with the gradients' norm.
absl::Status TrainStep(Strategy& strategy, const Batch& batch,
                       const TrainOptions& options) {
  strategy.MeasureGradientNorm();
  TANDEM_RETURN_IF_ERROR(
      strategy.SubmitStep(batch, ResolvedLearningRate(options)));
  return strategy.TakeScores().status();
}

// The second step's work: the first one makes optimizer states, too.
absl::StatusOr<std::vector<sim::DeviceWork>> Run(const SetUpJob& job,
                                                 const TrainOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const Batch batch,
                          FirstBatch(*job.data.train, options.batch_size));
  TANDEM_RETURN_IF_ERROR(TrainStep(*job.strategy, batch, options));
  for (const c10::Device& each : job.devices) sim::ResetWork(each.index());
  TANDEM_RETURN_IF_ERROR(TrainStep(*job.strategy, batch, options));
  std::vector<sim::DeviceWork> work;
  for (const c10::Device& each : job.devices) {
    work.push_back(sim::WorkOf(each.index()));
  }
  TANDEM_ASSIGN_OR_RETURN(const Batch test,
                          FirstBatch(*job.data.test, options.batch_size));
  TANDEM_RETURN_IF_ERROR(job.strategy->Evaluate(test).status());
  return work;
}

// Each device's work of a step, shared out evenly among its stages'
// microbatches.
absl::Status PredictStep(const Schedule& schedule, RehearsedJob* job) {
  ScheduleCosts costs;
  double update = 0;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto device = static_cast<size_t>(DeviceOfStage(schedule, stage));
    const sim::DeviceWork& work = job->devices[device].work;
    const double parts = static_cast<double>(schedule.microbatches) *
                         static_cast<double>(schedule.stages_of[device].size());
    const double backward = work.backward.seconds / parts;
    costs.stages.push_back(
        {work.forward.seconds / parts, backward / 2, backward / 2});
    update = std::max(update, work.rest.seconds);
  }
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction predicted,
                          PredictSchedule(schedule, costs));
  job->step = predicted.step + update;
  const double busiest = predicted.step - predicted.bubble;
  job->bubble = busiest > 0 ? predicted.bubble / busiest : 0;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const SetUpJob job, SetUp(settings, options, launch));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<sim::DeviceWork> work,
                          Run(job, options));
  RehearsedJob rehearsed;
  rehearsed.partition = job.partition.table;
  for (size_t i = 0; i < job.devices.size(); ++i) {
    rehearsed.devices.push_back({job.devices[i].str(),
                                 sim::BooksOf(static_cast<int>(i)).peak,
                                 work[i]});
  }
  TANDEM_RETURN_IF_ERROR(PredictStep(job.partition.schedule, &rehearsed));
  return rehearsed;
}

}  // namespace tandem
