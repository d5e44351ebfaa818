// Channels of one process's stages, to each other and to other ranks.

#ifndef TANDEM_PARALLEL_PIPELINE_CHANNELS_H_
#define TANDEM_PARALLEL_PIPELINE_CHANNELS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/pipeline/lanes.h"
#include "parallel/pipeline/layout.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

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
