// Channels of one process's stages, to each other and to other ranks.

#ifndef TANDEM_PARALLEL_PIPELINE_CHANNELS_H_
#define TANDEM_PARALLEL_PIPELINE_CHANNELS_H_

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// How a schedule's devices are shared out.
struct PipelineLayout {
  // Device d of the schedule is number d % devices.size() of rank d /
  // devices.size() of `group`.
  std::vector<c10::Device> devices;  // this rank's
  Communicator* group = nullptr;     // null: one rank

  int rank() const { return group == nullptr ? 0 : group->rank(); }
  int ranks() const { return group == nullptr ? 1 : group->size(); }
  int RankOf(int schedule_device) const {
    return schedule_device / static_cast<int>(devices.size());
  }
  bool IsHere(int schedule_device) const {
    return RankOf(schedule_device) == rank();
  }
  c10::Device DeviceFor(int schedule_device) const {
    return devices[static_cast<size_t>(schedule_device) % devices.size()];
  }
};

// InvalidArgument when the layout has another number of devices than the
// schedule.
absl::Status CheckLayout(const Schedule& schedule,
                         const PipelineLayout& layout);

// The ends that stages on this rank use; null at the ends of the model and for
// stages elsewhere.
class PipelineChannels {
 public:
  // Requires CheckLayout. `capacity` is what the schedule needs.
  PipelineChannels(const Schedule& schedule, const PipelineLayout& layout,
                   int capacity, std::chrono::milliseconds timeout);

  ChannelReceiver* inputs(int stage) const { return At(stage).inputs; }
  ChannelSender* outputs(int stage) const { return At(stage).outputs; }
  ChannelReceiver* gradients(int stage) const { return At(stage).gradients; }
  ChannelSender* further(int stage) const { return At(stage).further; }

  // A step of microbatches of so many samples begins, with backward, in the
  // schedule's order, or without, from the first to the last; no thread is
  // inside a channel.
  void Begin(const std::vector<int64_t>& rows, bool with_backward);
  void Close(const absl::Status& reason);

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
  std::vector<Ends> ends_;  // by stage
  std::vector<std::unique_ptr<ChannelEnd>> all_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_CHANNELS_H_
