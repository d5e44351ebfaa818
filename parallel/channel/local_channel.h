// Local channel: between two devices of one process.

#ifndef TANDEM_PARALLEL_CHANNEL_LOCAL_CHANNEL_H_
#define TANDEM_PARALLEL_CHANNEL_LOCAL_CHANNEL_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/copy_channel.h"

namespace tandem {

// Both ends in one. Messages are copied by `copies`, and at most `capacity` (1
// or more) wait to be taken. Errors call one "activations of microbatch 3 from
// stage 1", of which `label` are the first and the last part.
class LocalChannel : public ChannelSender, public ChannelReceiver {
 public:
  struct Label {
    std::string what;   // "activations"
    std::string stage;  // "from stage 1"
  };

  LocalChannel(CopyDirection copies, int capacity,
               std::chrono::milliseconds timeout, Label label);

  void Begin(const ChannelStep& step) override;
  absl::Status Send(int microbatch, const StageMessage& message) override;
  absl::StatusOr<StageMessage> Receive(int microbatch) override;
  void Close(const absl::Status& reason) override;

 private:
  struct Waiting {
    PendingCopy copies;
    std::vector<bool> takes_gradient;
  };

  std::string Describe(int microbatch) const;

  const CopyDirection copies_;
  const size_t capacity_;
  const absl::Duration timeout_;
  const Label label_;
  absl::Mutex mutex_;
  std::map<int, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_LOCAL_CHANNEL_H_
