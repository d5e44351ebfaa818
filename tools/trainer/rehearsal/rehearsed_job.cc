#include "tools/trainer/rehearsal/rehearsed_job.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "parallel/schedule/prediction.h"

namespace tandem {
namespace {

using Devices = std::vector<const RehearsedDevice*>;

// The first replica's devices, as the schedule counts them. In a mesh its ranks
// come first.
Devices FirstReplica(const RehearsedJob& job, size_t devices) {
  Devices first;
  for (size_t i = 0; i < devices; ++i) first.push_back(&job.devices[i]);
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
  const size_t replica = job->devices.size() / static_cast<size_t>(mesh.data());
  TANDEM_ASSIGN_OR_RETURN(
      const SchedulePrediction predicted,
      PredictSchedule(schedule,
                      StepCosts(schedule, FirstReplica(*job, replica))));
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

}  // namespace tandem
