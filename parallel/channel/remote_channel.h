// Remote channels: between stages of two ranks, through their communicator.

#ifndef TANDEM_PARALLEL_CHANNEL_REMOTE_CHANNEL_H_
#define TANDEM_PARALLEL_CHANNEL_REMOTE_CHANNEL_H_

#include <c10/core/Device.h>

#include <memory>

#include "core/comm/communicator.h"
#include "parallel/channel/channel.h"

namespace tandem {

// One rank's side of the two channels to another rank: what it sends, and what
// comes back. Tensors' shapes and dtypes, and which take a gradient, are told
// once a step for each size of a microbatch, with its first activations of that
// size; gradients have those of the activations, and are zero where there is
// none. See message_layout.h.
//
// Receives are started ahead of time, so that messages move while this rank
// computes: in the order in which they are taken, or on a lane, where nothing
// else tells them apart, in that in which they are sent. What was sent lives
// until a message of the other direction shows that it was taken
// (ChannelStep::taken); a sender waits when `capacity` messages are left.
//
// Errors are the communicator's, and InvalidArgument when activations have
// other shapes than earlier ones of the step with as large a microbatch, and
// when the two sides' steps are not of the same samples in the same
// microbatches, which the first message of a step tells (StepForm).
// Closing an end aborts the communicator: another step is not possible then.
struct RemoteChannelOptions {
  Communicator* group = nullptr;  // must outlive the ends
  int peer = 0;                   // rank in the group
  // Where streams carry tensors: each direction's own communicator of the two
  // ranks, of this side's device. Then `group` carries the layouts, of the
  // host.
  Communicator* activations_lane = nullptr;
  Communicator* gradients_lane = nullptr;
  int stage = 0;                   // whose output crosses
  int microbatches = 1;            // of a step, at most
  int capacity = 1;                // messages that a sender holds
  c10::Device device = c10::kCPU;  // of this side
};

// The side of the stage before the cut.
struct UpstreamEnds {
  std::unique_ptr<ChannelSender> activations;
  std::unique_ptr<ChannelReceiver> gradients;
};
UpstreamEnds MakeUpstreamEnds(const RemoteChannelOptions& options);

// The side of the stage behind it.
struct DownstreamEnds {
  std::unique_ptr<ChannelReceiver> activations;
  std::unique_ptr<ChannelSender> gradients;
};
DownstreamEnds MakeDownstreamEnds(const RemoteChannelOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_REMOTE_CHANNEL_H_
