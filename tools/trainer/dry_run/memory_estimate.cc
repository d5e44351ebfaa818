#include "tools/trainer/dry_run/memory_estimate.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"
#include "core/device/memory_category.h"
#include "core/memory/state_bytes.h"
#include "parallel/balance/cut.h"
#include "tools/trainer/job/strategy_options.h"
#include "tools/trainer/rehearsal/rehearsal.h"

namespace tandem {
namespace {

constexpr int64_t kFloat = 4;

int64_t ElementBytes(const TrainOptions& options) {
  return RequestedPrecision(options).param_dtype.has_value() ? 2 : kFloat;
}

// What is kept for each parameter, by whoever updates it.
StatePerParameter KeptByUpdaters(const JobPlan& plan) {
  return JobStatePerParameter(
      plan.job.options, plan.partition.partition.schedule, plan.groups.update,
      /*devices=*/{}, plan.job.mesh.replicas(), plan.job.launch.nnodes == 1);
}

// What a device keeps for each parameter. A parameter server has the only
// optimizer.
StatePerParameter Kept(const JobPlan& plan) {
  if (ParameterServerCount(plan.job.options) > 0) {
    return {/*optimizer_states=*/0};
  }
  return KeptByUpdaters(plan);
}

struct Elements {
  int64_t all = 0;
  int64_t matrices = 0;  // of them, those of parameters of two dimensions
};

// The parameters of a stage, by how many tensors of their size an optimizer
// keeps. What is tied within it counts once, and else is a copy.
std::map<int, Elements> ParametersIn(const LayerRange& stage,
                                     const std::vector<TensorShape>& shapes,
                                     const StatePerParameter& kept) {
  std::map<int, Elements> by_states;
  std::set<std::string> here;
  for (const TensorShape& each : shapes) {
    const auto layer = static_cast<int64_t>(each.layer);
    if (each.is_buffer || layer < stage.begin || layer >= stage.end) continue;
    if (!each.tied_to.empty() && here.count(each.tied_to) > 0) continue;
    here.insert(each.name);
    Elements& elements = by_states[kept.For(each.name).optimizer_states];
    elements.all += each.numel();
    if (each.sizes.size() > 1) elements.matrices += each.numel();
  }
  return by_states;
}

std::string LayerNames(const LayerRange& range,
                       const std::vector<std::string>& layers) {
  const std::string& first = layers[static_cast<size_t>(range.begin)];
  const std::string& last = layers[static_cast<size_t>(range.end - 1)];
  return first == last ? first : absl::StrCat(first, " to ", last);
}

// Parameters and state of these stages.
DeviceEstimate DeviceState(const JobPlan& plan, const std::vector<int>& own,
                           const std::vector<LayerRange>& stages,
                           const StatePerParameter& kept) {
  const int64_t element = ElementBytes(plan.job.options);
  DeviceEstimate estimate;
  std::vector<std::string> names;
  for (const int stage : own) {
    const LayerRange& layers = stages[static_cast<size_t>(stage)];
    names.push_back(LayerNames(layers, plan.layers));
    for (const auto& [states, elements] :
         ParametersIn(layers, plan.rank_shapes, kept)) {
      StatePerParameter of_each = kept;
      of_each.optimizer_states = states;
      estimate.parameters += elements.all;
      const StateBytes state = ComputeStateBytes(
          elements.all * kFloat,
          element == kFloat ? 0 : elements.matrices * element,
          /*is_trained=*/!plan.job.options.eval_only, of_each);
      estimate.use.Add(MemoryCategory::kParameters, state.parameters);
      estimate.use.Add(MemoryCategory::kGradients, state.gradients);
      estimate.use.Add(MemoryCategory::kOptimizer, state.optimizer);
    }
  }
  estimate.layers = absl::StrJoin(names, " + ");
  return estimate;
}

}  // namespace

const DeviceEstimate& MemoryEstimate::fullest() const {
  CHECK(!devices.empty());
  return *std::max_element(
      devices.begin(), devices.end(),
      [](const auto& a, const auto& b) { return a.use.total < b.use.total; });
}

MemoryEstimate EstimateMemory(const JobPlan& plan) {
  const TrainOptions& options = plan.job.options;
  const Schedule& schedule = plan.partition.partition.schedule;
  const std::vector<LayerRange> stages = LayerRanges(
      plan.partition.partition.cuts, static_cast<int64_t>(plan.layers.size()));
  const StatePerParameter kept = Kept(plan);
  MemoryEstimate estimate;
  for (const std::vector<int>& own : schedule.stages_of) {
    estimate.devices.push_back(DeviceState(plan, own, stages, kept));
  }
  const auto rehearsed = RehearseReplica(options, plan.job.launch);
  if (!rehearsed.ok()) {
    estimate.why_by_arithmetic = std::string(rehearsed.status().message());
    return estimate;
  }
  CHECK_EQ(rehearsed->devices.size(), estimate.devices.size());
  for (size_t i = 0; i < estimate.devices.size(); ++i) {
    estimate.devices[i].use = rehearsed->devices[i].peak;
  }
  return estimate;
}

absl::Status CheckDeviceMemory(const MemoryEstimate& estimate,
                               const TrainOptions& options) {
  if (options.devices.device_memory.empty()) return absl::OkStatus();
  const auto most = ParseByteSize(options.devices.device_memory);
  if (!most.ok()) return most.status();
  const DeviceEstimate& fullest = estimate.fullest();
  if (fullest.use.total <= *most) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--device_memory=", options.devices.device_memory, ": the device of ",
      fullest.layers, " would hold ", FormatBytes(fullest.use.total), " (",
      DescribeUse(fullest.use),
      "): give it less, with more devices, smaller microbatches or "
      "--checkpoint_every"));
}

int64_t HostBytes(const MemoryEstimate& estimate, const Job& job) {
  const DeviceSettings& devices = job.options.devices;
  if (devices.device == "cuda") return 0;
  int64_t bytes = 0;
  for (const DeviceEstimate& each : estimate.devices) bytes += each.use.total;
  // One that stands for all of a rank's.
  if (job.options.strategy == "data_parallel") {
    bytes *= devices.devices_per_rank;
  }
  return bytes / job.mesh.pipe() * job.launch.local_world_size;
}

int64_t CheckpointBytes(const JobPlan& plan) {
  const TrainOptions& options = plan.job.options;
  const StatePerParameter state = KeptByUpdaters(plan);
  const int64_t averages = options.ema_decay > 0 ? 1 : 0;
  int64_t bytes = 0;
  for (const TensorShape& each : plan.shapes) {
    const int64_t elements = each.numel();
    bytes += elements * static_cast<int64_t>(c10::elementSize(each.dtype));
    if (each.is_buffer) continue;
    // A tied weight is stored under each of its names, its state once.
    const int64_t states =
        each.tied_to.empty() ? state.For(each.name).optimizer_states : 0;
    const int64_t kept = averages + states;
    bytes += elements * kFloat * kept;
  }
  return bytes;
}

}  // namespace tandem
