#include "tools/trainer/rehearsal/rehearsal.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/communicator.h"
#include "core/device/device.h"
#include "core/mesh/mesh.h"
#include "core/meta/shapes.h"
#include "core/model/make_layers.h"
#include "core/sim/imagined/meters.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/sim/streams/streams.h"
#include "parallel/step/step_score.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/job/process.h"
#include "tools/trainer/job/strategy.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/rehearsal/rehearsed_job.h"

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
  sim::SetLinkSpeed({settings.link_bandwidth, settings.network_bandwidth});
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

// What devices exchange with those of other ranks moves nothing; what the host
// does is as in training.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectImagined(
    const TrainOptions& options, const Launch& launch) {
  TrainOptions imagined = options;
  imagined.backend = absl::StrCat("cpu:", options.backend, ",sim:sim_links");
  return Connect(imagined, launch);
}

// A job that has been set up: what outlives its strategy stands before it.
struct SetUpJob {
  Mesh mesh;
  int64_t batch_size = 0;  // of a replica
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
  TANDEM_ASSIGN_OR_RETURN(job.mesh, MeshOf(options, launch.world_size));
  TANDEM_ASSIGN_OR_RETURN(job.batch_size,
                          BatchSizeOf(options, job.mesh.data()));
  TANDEM_RETURN_IF_ERROR(TakeThreads(options, launch).status());
  TANDEM_ASSIGN_OR_RETURN(job.devices, MakeDevices(settings, options));
  TANDEM_ASSIGN_OR_RETURN(job.world, ConnectImagined(options, launch));
  TANDEM_ASSIGN_OR_RETURN(const std::optional<Transformer> transformer,
                          TransformerOf(options));
  TANDEM_ASSIGN_OR_RETURN(job.data, OpenData(options, transformer, *job.world));
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs layers,
                          LayersOf(options, transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(const RowParts parts,
                          RowPartsOf(options, transformer, *job.data.train));
  layers = WithoutValues(std::move(layers));
  TANDEM_ASSIGN_OR_RETURN(
      job.partition,
      PartitionOf(options, layers, job.devices, job.data, *job.world));
  TANDEM_ASSIGN_OR_RETURN(job.strategy,
                          MakeStrategy(options, layers, parts, job.partition,
                                       job.devices, *job.world));
  return job;
}

// One that is reported (--log_every), with the gradients' norm.
absl::Status TrainStep(Strategy& strategy, const Batch& batch,
                       const TrainOptions& options) {
  strategy.MeasureGradientNorm();
  TANDEM_RETURN_IF_ERROR(
      strategy.SubmitStep(batch, ResolvedLearningRate(options)));
  return strategy.TakeScores().status();
}

void ForgetWork(const std::vector<c10::Device>& devices) {
  for (const c10::Device& each : devices) {
    sim::ResetWork(each.index());
    sim::ResetTraffic(each.index());
  }
}

// A batch of the test set, of which each replica has its share.
absl::Status Evaluate(const SetUpJob& job, const TrainOptions& options) {
  const Dataset& test = *job.data.test;
  const int64_t replicas = job.mesh.data();
  const int64_t share = (test.size() + replicas - 1) / replicas;
  TANDEM_ASSIGN_OR_RETURN(
      const Batch batch,
      FirstSamples(test, std::min(share, EvaluationBatchSize(
                                             options, job.batch_size, test))));
  return job.strategy->Evaluate(batch).status();
}

// What this rank's have done since. They are called as training calls them.
std::vector<RehearsedDevice> OwnDevices(const std::vector<c10::Device>& devices,
                                        int rank) {
  std::vector<RehearsedDevice> own;
  for (size_t i = 0; i < devices.size(); ++i) {
    const int index = devices[i].index();
    const size_t number = static_cast<size_t>(rank) * devices.size() + i;
    own.push_back({absl::StrCat("sim:", number), MemoryUse(),
                   sim::WorkOf(index), sim::TrafficOf(index)});
  }
  return own;
}

// With the second step's work: the first one makes optimizer states, too.
absl::StatusOr<std::vector<RehearsedDevice>> Run(const SetUpJob& job,
                                                 const TrainOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const Batch batch,
                          FirstSamples(*job.data.train, job.batch_size));
  TANDEM_RETURN_IF_ERROR(TrainStep(*job.strategy, batch, options));
  ForgetWork(job.devices);
  TANDEM_RETURN_IF_ERROR(TrainStep(*job.strategy, batch, options));
  std::vector<RehearsedDevice> devices =
      OwnDevices(job.devices, job.world->rank());
  if (job.data.has_test()) {
    TANDEM_RETURN_IF_ERROR(Evaluate(job, options));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].peak = sim::BooksOf(job.devices[i].index()).peak;
  }
  return devices;
}

}  // namespace

absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const SetUpJob job, SetUp(settings, options, launch));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RehearsedDevice> own,
                          Run(job, options));
  RehearsedJob rehearsed;
  TANDEM_ASSIGN_OR_RETURN(rehearsed.devices, GatherDevices(own, *job.world));
  rehearsed.partition = job.partition.table;
  TANDEM_RETURN_IF_ERROR(
      PredictStep(job.partition.schedule, job.mesh, &rehearsed));
  return rehearsed;
}

}  // namespace tandem
