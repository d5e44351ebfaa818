// A link between stages of two ranks: messages through their communicator.

#ifndef TANDEM_PARALLEL_CHANNEL_REMOTE_STAGE_LINK_H_
#define TANDEM_PARALLEL_CHANNEL_REMOTE_STAGE_LINK_H_

#include <c10/core/Device.h>

#include <memory>

#include "core/comm/communicator.h"
#include "parallel/channel/stage_link.h"

namespace tandem {

// One rank's side of a link to another rank: what it sends one way, and what
// comes back. Tensors' shapes and dtypes, and which take a gradient, are told
// once a step for each size of a microbatch, with its first activations of that
// size; gradients have those of the activations, and are zero where there is
// none. See message_form.h.
//
// Receives are started ahead of time, so that messages move while this rank
// computes. What was sent lives until a message of the other direction shows
// that it was taken (LinkStep::taken); a sender waits when `capacity` messages
// are left.
//
// Errors are the communicator's, and InvalidArgument when activations have
// other shapes than earlier ones of the step with as large a microbatch.
// Closing an end aborts the communicator: another step is not possible then.
struct RemoteLinkOptions {
  Communicator* group = nullptr;   // must outlive the link
  int peer = 0;                    // rank in the group
  int stage = 0;                   // whose output crosses
  int microbatches = 1;            // of a step, at most
  int capacity = 1;                // messages that a sender holds
  c10::Device device = c10::kCPU;  // of this side
};

// The side of the stage before the cut.
struct UpstreamLink {
  std::unique_ptr<StageSender> activations;
  std::unique_ptr<StageReceiver> gradients;
};
UpstreamLink MakeUpstreamLink(const RemoteLinkOptions& options);

// The side of the stage behind it.
struct DownstreamLink {
  std::unique_ptr<StageReceiver> activations;
  std::unique_ptr<StageSender> gradients;
};
DownstreamLink MakeDownstreamLink(const RemoteLinkOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_REMOTE_STAGE_LINK_H_
