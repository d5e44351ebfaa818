#include "parallel/pipeline/channels.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/channel/remote_channel.h"

namespace tandem {
namespace {

using Matches = bool(ActionKind);

// The microbatches of a stage's actions that `matches` takes, in order.
std::vector<int> MicrobatchOrder(const std::vector<Action>& actions,
                                 Matches matches) {
  std::vector<int> order;
  for (const Action& each : actions) {
    if (matches(each.kind)) order.push_back(each.microbatch);
  }
  return order;
}

// What ChannelStep::taken says of the messages that a stage sends with `sends`.
std::map<int, std::vector<int>> TakenBefore(const std::vector<Action>& actions,
                                            Matches sends, Matches takes) {
  std::map<int, std::vector<int>> taken;
  std::vector<int> since;
  for (const Action& each : actions) {
    if (takes(each.kind)) since.push_back(each.microbatch);
    if (sends(each.kind)) taken[each.microbatch] = std::exchange(since, {});
  }
  return taken;
}

}  // namespace

absl::Status CheckLayout(const Schedule& schedule,
                         const PipelineLayout& layout) {
  CHECK(!layout.devices.empty());
  const int there = layout.ranks() * static_cast<int>(layout.devices.size());
  if (there == schedule.devices()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule ", schedule.name, " is for ", schedule.devices(),
                   " devices, but there are ", there, ": ", layout.ranks(),
                   " ranks of ", layout.devices.size()));
}

absl::StatusOr<PipelineLanes> PipelineLanes::Create(
    const Schedule& schedule, const PipelineLayout& layout) {
  PipelineLanes lanes;
  if (layout.group == nullptr || !layout.group->backend_names().HasStreams(
                                     layout.devices.front().type())) {
    return lanes;
  }
  for (int stage = 0; stage + 1 < schedule.stages; ++stage) {
    const int device = DeviceOfStage(schedule, stage);
    const int next = DeviceOfStage(schedule, stage + 1);
    const int sender = layout.RankFor(device);
    const int receiver = layout.RankFor(next);
    if (sender == receiver ||
        (!layout.IsHere(device) && !layout.IsHere(next))) {
      continue;
    }
    SubgroupOptions own;
    own.device = layout.DeviceFor(layout.IsHere(device) ? device : next);
    const std::vector<int> ranks = {sender, receiver};
    Lane& lane = lanes.lanes_[stage];
    TANDEM_ASSIGN_OR_RETURN(
        lane.activations,
        layout.group->Subgroup(
            ranks, absl::StrCat("activations from stage ", stage), own));
    TANDEM_ASSIGN_OR_RETURN(
        lane.gradients,
        layout.group->Subgroup(
            ranks, absl::StrCat("gradients for stage ", stage), own));
  }
  return lanes;
}

const PipelineLanes::Lane* PipelineLanes::Find(int stage) const {
  const auto found = lanes_.find(stage);
  return found == lanes_.end() ? nullptr : &found->second;
}

absl::Status PipelineLanes::Synchronize() const {
  absl::Status all;
  for (const auto& each : lanes_) {
    all.Update(each.second.activations->Synchronize());
    all.Update(each.second.gradients->Synchronize());
  }
  return all;
}

void PipelineLanes::Abort(const absl::Status& reason) const {
  for (const auto& each : lanes_) {
    each.second.activations->Abort(reason);
    each.second.gradients->Abort(reason);
  }
}

PipelineChannels::PipelineChannels(const Schedule& schedule,
                                   const PipelineLayout& layout,
                                   PipelineLanes lanes, int capacity,
                                   std::chrono::milliseconds timeout)
    : schedule_(schedule),
      lanes_(std::move(lanes)),
      ends_(static_cast<size_t>(schedule.stages)) {
  const std::vector<int> device_of = DevicesOfStages(schedule);
  for (size_t i = 0; i + 1 < device_of.size(); ++i) {
    const int stage = static_cast<int>(i);
    const int device = device_of[i];
    const int next = device_of[i + 1];
    if (layout.IsHere(device) && layout.IsHere(next)) {
      // Neighbours on one device hand over without waiting for each other.
      const int room = device == next ? schedule.microbatches : capacity;
      JoinHere(stage,
               CopyChannel(layout.DeviceFor(device), layout.DeviceFor(next)),
               room, timeout);
    } else if (layout.IsHere(device) || layout.IsHere(next)) {
      JoinRanks(stage, layout, capacity);
    }
  }
}

void PipelineChannels::JoinHere(int stage, const CopyChannel& channel,
                                int capacity,
                                std::chrono::milliseconds timeout) {
  auto there = std::make_unique<LocalChannel>(
      channel.there(), capacity, timeout,
      LocalChannel::Label{"activations", absl::StrCat("from stage ", stage)});
  auto back = std::make_unique<LocalChannel>(
      channel.back(), capacity, timeout,
      LocalChannel::Label{"gradients", absl::StrCat("for stage ", stage)});
  Ends& before = ends_[static_cast<size_t>(stage)];
  Ends& behind = ends_[static_cast<size_t>(stage) + 1];
  before.outputs = there.get();
  behind.inputs = there.get();
  before.gradients = back.get();
  behind.further = back.get();
  all_.push_back(std::move(there));
  all_.push_back(std::move(back));
}

void PipelineChannels::JoinRanks(int stage, const PipelineLayout& layout,
                                 int capacity) {
  const int device = DeviceOfStage(schedule_, stage);
  const int next = DeviceOfStage(schedule_, stage + 1);
  const bool is_before = layout.IsHere(device);
  RemoteChannelOptions options;
  options.group = layout.group;
  options.peer = layout.RankFor(is_before ? next : device);
  options.stage = stage;
  options.microbatches = schedule_.microbatches;
  options.capacity = capacity;
  options.device = layout.DeviceFor(is_before ? device : next);
  if (const PipelineLanes::Lane* const lane = lanes_.Find(stage)) {
    options.activations_lane = lane->activations.get();
    options.gradients_lane = lane->gradients.get();
  }
  Ends& ends = ends_[static_cast<size_t>(is_before ? stage : stage + 1)];
  if (is_before) {
    UpstreamEnds remote = MakeUpstreamEnds(options);
    ends.outputs = remote.activations.get();
    ends.gradients = remote.gradients.get();
    all_.push_back(std::move(remote.activations));
    all_.push_back(std::move(remote.gradients));
  } else {
    DownstreamEnds remote = MakeDownstreamEnds(options);
    ends.inputs = remote.activations.get();
    ends.further = remote.gradients.get();
    all_.push_back(std::move(remote.activations));
    all_.push_back(std::move(remote.gradients));
  }
}

void PipelineChannels::Begin(const std::vector<int64_t>& rows,
                             uint64_t identity, bool with_backward) {
  const std::vector<std::vector<Action>> by_stage =
      ActionsByStage(schedule_, static_cast<int>(rows.size()));
  for (size_t stage = 0; stage < by_stage.size(); ++stage) {
    const Ends& ends = ends_[stage];
    ChannelStep going;
    ChannelStep coming;
    going.rows = coming.rows = rows;
    going.identity = identity;
    if (with_backward) {
      going.order = MicrobatchOrder(by_stage[stage], IsForward);
      coming.order = MicrobatchOrder(by_stage[stage], GivesInputGradient);
      if (ends.gradients != nullptr) {
        const std::vector<Action>& sender = by_stage[stage + 1];
        coming.sent = MicrobatchOrder(sender, GivesInputGradient);
        coming.taken = TakenBefore(sender, GivesInputGradient, IsForward);
      }
      if (ends.inputs != nullptr) {
        const std::vector<Action>& sender = by_stage[stage - 1];
        going.sent = MicrobatchOrder(sender, IsForward);
        going.taken = TakenBefore(sender, IsForward, GivesInputGradient);
      }
    } else {
      going.order.resize(rows.size());
      std::iota(going.order.begin(), going.order.end(), 0);
      going.sent = going.order;
    }
    // A local channel is both ends, and begins twice.
    if (ends.inputs != nullptr) ends.inputs->Begin(going);
    going.sent = going.order;  // of the outputs this stage is the sender
    if (ends.outputs != nullptr) ends.outputs->Begin(going);
    if (ends.gradients != nullptr) ends.gradients->Begin(coming);
    if (ends.further != nullptr) ends.further->Begin(coming);
  }
}

ChannelTraffic PipelineChannels::sent() const {
  ChannelTraffic all;
  for (const Ends& each : ends_) {
    if (each.outputs != nullptr) all += each.outputs->sent();
    if (each.further != nullptr) all += each.further->sent();
  }
  return all;
}

void PipelineChannels::Close(const absl::Status& reason) {
  for (const auto& each : all_) each->Close(reason);
}

}  // namespace tandem
