// Channels of one process's stages, to each other and to other ranks; which
// ranks and devices hold stages, and the communicators of the cuts between
// ranks.

#ifndef TANDEM_PARALLEL_PIPELINE_CHANNELS_H_
#define TANDEM_PARALLEL_PIPELINE_CHANNELS_H_

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// Pipeline layout: which ranks and devices hold a schedule's stages.
struct PipelineLayout {
  // Device d of the schedule is number d % devices.size() of rank d /
  // devices.size() of `group`.
  std::vector<c10::Device> devices;  // this rank's
  Communicator* group = nullptr;     // null: one rank

  int rank() const { return group == nullptr ? 0 : group->rank(); }
  int ranks() const { return group == nullptr ? 1 : group->size(); }
  int RankFor(int schedule_device) const {
    return schedule_device / static_cast<int>(devices.size());
  }
  bool IsHere(int schedule_device) const {
    return RankFor(schedule_device) == rank();
  }
  c10::Device DeviceFor(int schedule_device) const {
    return devices[static_cast<size_t>(schedule_device) % devices.size()];
  }
};

// InvalidArgument when the layout has another number of devices than the
// schedule.
absl::Status CheckLayout(const Schedule& schedule,
                         const PipelineLayout& layout);

// Communicators of a pipeline's cuts: one for each direction in which messages
// of two ranks cross, where streams carry them.
//
// On streams messages have no tags: those of one communicator stand in one
// line, both directions of them. A pipeline posts receives before it sends what
// they answer, so each direction of each cut is a line of its own, in which
// both sides follow the sender's order. (Megatron alternates between two groups
// for the same reason.)
class PipelineLanes {
 public:
  struct Lane {
    std::unique_ptr<Communicator> activations;
    std::unique_ptr<Communicator> gradients;
  };

  // For this rank's cuts to other ranks; none where the group's host carries
  // the messages. Collective over the two ranks of each cut; all make theirs in
  // the order of the stages.
  static absl::StatusOr<PipelineLanes> Create(const Schedule& schedule,
                                              const PipelineLayout& layout);

  // Behind that stage; null: there is none.
  const Lane* Find(int stage) const;

  // Communicator's, of all of them.
  absl::Status Synchronize() const;
  void Abort(const absl::Status& reason) const;

 private:
  std::map<int, Lane> lanes_;  // by the stage before the cut
};

// The ends that stages on this rank use; null at the ends of the model and for
// stages elsewhere.
class PipelineChannels {
 public:
  // Requires CheckLayout. `capacity` is what the schedule needs.
  PipelineChannels(const Schedule& schedule, const PipelineLayout& layout,
                   PipelineLanes lanes, int capacity,
                   std::chrono::milliseconds timeout);

  ChannelReceiver* inputs(int stage) const { return At(stage).inputs; }
  ChannelSender* outputs(int stage) const { return At(stage).outputs; }
  ChannelReceiver* gradients(int stage) const { return At(stage).gradients; }
  ChannelSender* further(int stage) const { return At(stage).further; }

  // A step of microbatches of so many samples, parts of the batch of this
  // identity, begins, with backward, in the schedule's order, or without, from
  // the first to the last; no thread is inside a channel.
  void Begin(const std::vector<int64_t>& rows, uint64_t identity,
             bool with_backward);
  void Close(const absl::Status& reason);
  const PipelineLanes& lanes() const { return lanes_; }

  // To other ranks, so far; no thread is inside a channel.
  ChannelTraffic sent() const;

 private:
  struct Ends {
    ChannelReceiver* inputs = nullptr;
    ChannelSender* outputs = nullptr;
    ChannelReceiver* gradients = nullptr;  // of the outputs
    ChannelSender* further = nullptr;      // gradients of the inputs
  };

  const Ends& At(int stage) const { return ends_[static_cast<size_t>(stage)]; }
  void JoinHere(int stage, const CopyChannel& channel, int capacity,
                std::chrono::milliseconds timeout);
  void JoinRanks(int stage, const PipelineLayout& layout, int capacity);

  Schedule schedule_;
  PipelineLanes lanes_;
  std::vector<Ends> ends_;  // by stage
  std::vector<std::unique_ptr<ChannelEnd>> all_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_CHANNELS_H_
