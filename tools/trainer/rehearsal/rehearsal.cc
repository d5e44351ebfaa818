#include "tools/trainer/rehearsal/rehearsal.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/backend/communicator_options.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/communicator.h"
#include "core/device/device.h"
#include "core/mesh/mesh.h"
#include "core/meta/shapes.h"
#include "core/model/layer_list.h"
#include "core/sim/imagined/meters.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/sim/streams/streams.h"
#include "core/store/store.h"
#include "parallel/schedule/simulation.h"
#include "parallel/step/step_score.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/devices.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/optimizer_groups.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/job/process.h"
#include "tools/trainer/job/strategy.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

using Devices = std::vector<const RehearsedDevice*>;

// The first replica's devices, as the schedule counts them: of ranks that share
// layers the first one's. In a mesh a replica's ranks come first.
Devices FirstReplica(const RehearsedJob& job, const Mesh& mesh) {
  const auto devices_per_rank =
      job.devices.size() / static_cast<size_t>(mesh.world_size());
  Devices first;
  for (int rank = 0; rank < mesh.ranks_of_replica(); ++rank) {
    if (mesh.IndexAlong(kTensorAxis, rank) > 0) continue;
    const size_t begin = static_cast<size_t>(rank) * devices_per_rank;
    for (size_t i = 0; i < devices_per_rank; ++i) {
      first.push_back(&job.devices[begin + i]);
    }
  }
  return first;
}

// How many messages come to a device with each microbatch: from the stage
// before each of its own, and gradients from the one behind.
int MessagesOfMicrobatch(const Schedule& schedule, int device) {
  int messages = 0;
  for (int stage = 0; stage + 1 < schedule.stages; ++stage) {
    const int here = DeviceOfStage(schedule, stage);
    const int next = DeviceOfStage(schedule, stage + 1);
    if (here == next) continue;
    messages += here == device ? 1 : 0;
    messages += next == device ? 1 : 0;
  }
  return messages;
}

// The longest that a message takes.
double LongestTransfer(const Schedule& schedule, const Devices& devices) {
  double longest = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    const int messages = schedule.microbatches *
                         MessagesOfMicrobatch(schedule, static_cast<int>(i));
    if (messages == 0) continue;
    const sim::DeviceTraffic& traffic = devices[i]->traffic;
    longest =
        std::max(longest, (traffic.copies.seconds + traffic.messages.seconds) /
                              static_cast<double>(messages));
  }
  return longest;
}

ScheduleCosts StepCosts(const Schedule& schedule, const Devices& devices) {
  ScheduleCosts costs;
  costs.transfer = LongestTransfer(schedule, devices);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto device = static_cast<size_t>(DeviceOfStage(schedule, stage));
    const sim::DeviceWork& work = devices[device]->work;
    const double parts = static_cast<double>(schedule.microbatches) *
                         static_cast<double>(schedule.stages_of[device].size());
    const double backward = work.backward.seconds / parts;
    costs.stages.push_back(
        {work.forward.seconds / parts, backward / 2, backward / 2});
  }
  return costs;
}

}  // namespace

using nlohmann::json;

// For the library, which finds them by their names.
namespace sim {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CountedWork, flops, bytes, seconds, calls)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceWork, forward, backward, rest)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CountedTraffic, bytes, seconds, calls)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceTraffic, copies, messages, collectives,
                                   waited)
}  // namespace sim

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryUse, total, by_category)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RehearsedDevice, name, peak, work, traffic)

absl::StatusOr<std::vector<RehearsedDevice>> GatherDevices(
    const std::vector<RehearsedDevice>& mine, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          world.AllGatherString(json(mine).dump(), [] {
                            return "what devices would hold and do";
                          }));
  std::vector<RehearsedDevice> all;
  for (const std::string& text : texts) {
    for (const json& each : json::parse(text)) {
      all.push_back(each.get<RehearsedDevice>());
    }
  }
  return all;
}

absl::Status PredictStep(const Schedule& schedule, const Mesh& mesh,
                         RehearsedJob* job) {
  TANDEM_ASSIGN_OR_RETURN(
      const SchedulePrediction predicted,
      PredictSchedule(schedule, StepCosts(schedule, FirstReplica(*job, mesh))));
  double update = 0;
  job->waited = 0;
  for (const RehearsedDevice& each : job->devices) {
    update = std::max(update, each.work.rest.seconds);
    job->waited = std::max(job->waited, each.traffic.waited);
  }
  job->step = predicted.step + job->waited + update;
  const double busiest = predicted.step - predicted.bubble;
  job->bubble = busiest > 0 ? predicted.bubble / busiest : 0;
  return absl::OkStatus();
}

namespace {

// --device_memory is no limit here: the report shows what would exceed it.
absl::StatusOr<std::vector<c10::Device>> MakeDevices(
    const RehearsalSettings& settings, const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(MakeImaginedDevices());
  sim::SetDeviceSpeed({options.peak_tflops * 1e12, settings.memory_bandwidth});
  sim::SetLinkSpeed({settings.link_bandwidth, settings.network_bandwidth});
  std::vector<c10::Device> devices;
  for (int i = 0; i < options.devices.devices_per_rank; ++i) {
    devices.push_back(SimDevice(i));
  }
  SetCurrentDevice(devices.front());
  return devices;
}

c10::Device HostPlaceholder() { return SimDevice(kMostRehearsedDevices); }

// Layers whose parameters are shapes.
LayerSpecs WithoutValues(LayerSpecs specs) {
  const auto without_values = [](auto make) {
    const MetaScope no_values(HostPlaceholder());
    return make();
  };
  return MadeThrough(without_values, std::move(specs));
}

// Collectives of devices of different ranks move no data; those of the host are
// as in training.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectImagined(
    const TrainOptions& options, const Launch& launch) {
  TrainOptions imagined = options;
  imagined.backend = absl::StrCat("cpu:", options.backend, ",sim:sim_links");
  return Connect(imagined, launch);
}

// This rank without the others. They may share memory as those of the job do.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectAlone(
    const TrainOptions& options, const Launch& launch) {
  CommunicatorOptions alone;
  alone.backend = "cpu:alone,sim:sim_links";
  alone.all_local = launch.nnodes == 1 && options.backend != "gloo";
  return Communicator::Create(NewHashStore(alone.timeout), launch.rank,
                              launch.world_size, "world", alone);
}

using Connecting = absl::StatusOr<std::unique_ptr<Communicator>> (*)(
    const TrainOptions& options, const Launch& launch);

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
                               const Launch& launch, Connecting connect) {
  SetUpJob job;
  TANDEM_ASSIGN_OR_RETURN(job.mesh, JobMesh(options, launch.world_size));
  TANDEM_ASSIGN_OR_RETURN(job.batch_size,
                          ReplicaBatchSize(options, job.mesh.replicas()));
  TANDEM_RETURN_IF_ERROR(TakeThreads(options, launch).status());
  TANDEM_ASSIGN_OR_RETURN(job.devices, MakeDevices(settings, options));
  TANDEM_ASSIGN_OR_RETURN(job.world, connect(options, launch));
  TANDEM_ASSIGN_OR_RETURN(const std::optional<Transformer> transformer,
                          JobTransformer(options));
  TANDEM_ASSIGN_OR_RETURN(job.data, OpenData(options, transformer, *job.world));
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs layers,
                          JobLayers(options, transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(const RowParts parts,
                          ModelRowParts(options, transformer, *job.data.train));
  layers = WithoutValues(std::move(layers));
  TANDEM_ASSIGN_OR_RETURN(const OptimizerGroups groups,
                          MakeOptimizerGroups(options, layers, parts));
  const JobModel model = {layers, JobLoss(options, transformer), groups.update};
  TANDEM_ASSIGN_OR_RETURN(
      job.partition,
      MakePartition(options, model, job.devices, job.data, *job.world));
  TANDEM_ASSIGN_OR_RETURN(
      job.strategy,
      MakeStrategy(options, model, job.partition, job.devices, *job.world));
  return job;
}

// A step that is reported (--log_every), with the norm of the gradients.
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
  const int64_t replicas = job.mesh.replicas();
  const int64_t share = (test.size() + replicas - 1) / replicas;
  TANDEM_ASSIGN_OR_RETURN(
      const Batch batch,
      FirstSamples(test, std::min(share, EvaluationBatchSize(
                                             options, job.batch_size, test))));
  return job.strategy->Evaluate(batch).status();
}

// What this rank's devices have done since ForgetWork, by the names that they
// have in training.
std::vector<RehearsedDevice> OwnDevices(const std::vector<c10::Device>& devices,
                                        int rank) {
  std::vector<RehearsedDevice> own;
  for (size_t i = 0; i < devices.size(); ++i) {
    const int index = devices[i].index();
    const size_t number = static_cast<size_t>(rank) * devices.size() + i;
    own.push_back({absl::StrCat("sim:", number), MemoryUse(),
                   sim::TotalWork(index), sim::ReadTraffic(index)});
  }
  return own;
}

// The work is that of the second step: the first one also makes optimizer
// states.
absl::StatusOr<std::vector<RehearsedDevice>> Run(const SetUpJob& job,
                                                 const TrainOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const Batch batch,
                          FirstSamples(*job.data.train, job.batch_size));
  for (int step = 0; step < 2 && !options.eval_only; ++step) {
    ForgetWork(job.devices);
    TANDEM_RETURN_IF_ERROR(TrainStep(*job.strategy, batch, options));
  }
  std::vector<RehearsedDevice> devices =
      OwnDevices(job.devices, job.world->rank());
  if (job.data.has_test()) {
    TANDEM_RETURN_IF_ERROR(Evaluate(job, options));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].peak = sim::DeviceMemoryStatistics(job.devices[i].index()).peak;
  }
  return devices;
}

}  // namespace

absl::StatusOr<RehearsedJob> RehearseJob(const RehearsalSettings& settings,
                                         const TrainOptions& options,
                                         const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const SetUpJob job,
                          SetUp(settings, options, launch, ConnectImagined));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RehearsedDevice> own,
                          Run(job, options));
  RehearsedJob rehearsed;
  TANDEM_ASSIGN_OR_RETURN(rehearsed.devices, GatherDevices(own, *job.world));
  rehearsed.partition = job.partition.table;
  TANDEM_RETURN_IF_ERROR(
      PredictStep(job.partition.schedule, job.mesh, &rehearsed));
  return rehearsed;
}

namespace {

// The job of one replica in one process, without what needs values, time or a
// training to its end, which hold no memory of a device.
absl::StatusOr<TrainOptions> OfOneProcess(const TrainOptions& options) {
  if (ParameterServerCount(options) > 0) {
    return absl::UnimplementedError("parameter servers are not rehearsed");
  }
  if (options.strategy == "data_parallel") {
    return absl::UnimplementedError(
        "replicas in one process are not rehearsed");
  }
  TrainOptions alone = options;
  PipelineSettings& pipeline = alone.pipeline;
  DeviceSettings& devices = alone.devices;
  devices.devices_per_rank *= pipeline.pipe;
  if (devices.devices_per_rank > kMostRehearsedDevices) {
    return absl::UnimplementedError(
        absl::StrCat("a replica of ", devices.devices_per_rank,
                     " devices is more than one process rehearses, ",
                     kMostRehearsedDevices));
  }
  if (pipeline.pipe > 1) alone.strategy = "hybrid";
  pipeline.pipe = 1;
  if (pipeline.balance == "profile") pipeline.balance = "parameters";
  if (MeasuresMicrobatches(pipeline)) pipeline.microbatches = std::nullopt;
  devices.device = "sim";
  devices.share_devices = false;
  devices.sim_async = false;
  alone.kernels = "fixed";
  alone.check_finite = false;
  alone.straggler_warning = 0;
  return alone;
}

}  // namespace

absl::StatusOr<RehearsedJob> RehearseReplica(const TrainOptions& options,
                                             const Launch& first) {
  TANDEM_ASSIGN_OR_RETURN(const TrainOptions alone, OfOneProcess(options));
  Launch launch = first;
  launch.rank = 0;
  launch.world_size /= static_cast<int>(options.pipeline.pipe);
  TANDEM_ASSIGN_OR_RETURN(const SetUpJob job, SetUp(RehearsalSettings(), alone,
                                                    launch, ConnectAlone));
  RehearsedJob rehearsed;
  TANDEM_ASSIGN_OR_RETURN(rehearsed.devices, Run(job, alone));
  rehearsed.partition = job.partition.table;
  return rehearsed;
}

}  // namespace tandem
