// Copy channel between two devices of one process: activations go one way,
// gradients the other. (torchgpipe's Copy and Wait, in one.)
//
//   CopyChannel channel(device0, device1);
//   at::Tensor y = net2->forward(channel.Copy(net1->forward(x)));
//
// Where both devices work through streams, copies run on streams of the
// channel's own, one per device and direction, beside what is computed, and
// events put them in order with that: the host never waits. Elsewhere (the CPU)
// a copy has ended when the call returns. A channel from a device to itself
// copies nothing: it hands the same tensors on.
//
// Copies keep dtype, sizes and, of dense tensors, strides. Undefined tensors
// pass. Throws LibTorch's exceptions; a tensor that does not lie where the
// channel begins is one (c10::Error).
//
// Local channel: between two devices of one process. Stream order: what keeps
// copies and what is computed in order where devices work through streams.

#ifndef TANDEM_PARALLEL_CHANNEL_COPY_CHANNEL_H_
#define TANDEM_PARALLEL_CHANNEL_COPY_CHANNEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/device/own_stream.h"
#include "parallel/channel/channel.h"

namespace tandem {

// A stream of the device's for whoever holds it; null when it works without
// streams, or through one only.
OwnStream NewStream(c10::Device device);

// The stream on which the calling thread computes on the device.
c10::Stream CurrentStream(c10::Device device);
// Streams of several devices, to be the current ones of another thread. The
// CPU, which has none, is left out.
std::vector<c10::Stream> CurrentStreams(
    const std::vector<c10::Device>& devices);

// Each step is a method of its own, so that a test can leave one out and see
// that it is missed. Thread-safe: it has no state. Throws LibTorch's
// exceptions.
class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  // What `copying` is given from now on runs after all that `producer` was
  // given until now.
  virtual void FollowProducer(const c10::Stream& copying,
                              const c10::Stream& producer) const;

  // What `consumer` is given from now on runs after the copies, which `copied`
  // was recorded behind.
  virtual void FollowCopy(const c10::Stream& consumer,
                          const c10::Event& copied) const;

  // The tensor's memory is given to nobody else before what `stream` was given
  // until the tensor's death has run.
  virtual void Keep(const at::Tensor& tensor, const c10::Stream& stream) const;
};

// Whether a tensor's device is this one. That of the CPU has no index, so that
// a tensor "on cpu:1" says "cpu".
bool IsOn(const at::Tensor& tensor, c10::Device device);

// Copies that have begun. Movable; to be taken once. It may be dropped, and may
// outlive the channel.
class PendingCopy {
 public:
  // What `consumer`, a stream of the destination, is given from now on may use
  // the copies.
  void Await(const c10::Stream& consumer) const;

  // What `producer`, a stream of the source, is given from now on may write to
  // the tensors that are copied.
  void Release(const c10::Stream& producer) const;

  // The copies, for the calling thread's current stream of the destination.
  // They require no gradient.
  std::vector<at::Tensor> Take();

 private:
  friend class CopyDirection;
  PendingCopy(c10::Device destination,
              std::shared_ptr<const StreamOrder> order);

  c10::Device destination_;
  std::shared_ptr<const StreamOrder> order_;
  std::vector<at::Tensor> copies_;
  std::vector<c10::Event> copied_;  // empty: there are no streams
};

// One direction of a channel. Thread-safe; copies begin in the order of calls.
class CopyDirection {
 public:
  CopyDirection(c10::Device source, c10::Device destination,
                std::shared_ptr<const StreamOrder> order);

  // Begins to copy what the calling thread's current stream of the source
  // computes. The tensors may be dropped at once; before they are written to,
  // the copies must be released.
  PendingCopy Start(at::TensorList tensors) const;

  c10::Device source() const { return source_; }
  c10::Device destination() const { return destination_; }
  bool has_streams() const { return streams_.has_value(); }

 private:
  struct Streams {
    OwnStream source;
    OwnStream destination;
  };

  at::Tensor CopyForDestination(const at::Tensor& tensor) const;
  PendingCopy StartOnStreams(at::TensorList tensors) const;

  c10::Device source_;
  c10::Device destination_;
  std::shared_ptr<const StreamOrder> order_;
  std::optional<Streams> streams_;
};

// Thread-safe. Autograd's graph keeps what it needs of a channel alive.
class CopyChannel {
 public:
  // Devices other than the CPU are given with their index.
  CopyChannel(c10::Device source, c10::Device destination,
              std::shared_ptr<const StreamOrder> order =
                  std::make_shared<StreamOrder>());

  // Differentiable, any number of times: backward copies the gradients from
  // the destination to the source. The calling thread's current streams of
  // both sides go on behind the copy, as after Tensor::to. Tensors that require
  // no gradient (token numbers) give ones that require none.
  at::Tensor Copy(const at::Tensor& tensor) const;
  std::vector<at::Tensor> Copy(at::TensorList tensors) const;

  // Without autograd, for who runs forward and backward of the two sides
  // himself: one side's thread begins, the other's takes. Copies run beside
  // what both sides compute.
  PendingCopy Send(at::TensorList tensors) const {
    return there_->Start(tensors);
  }
  PendingCopy SendBack(at::TensorList tensors) const {
    return back_->Start(tensors);
  }

  c10::Device source() const { return there_->source(); }
  c10::Device destination() const { return there_->destination(); }
  const CopyDirection& there() const { return *there_; }
  const CopyDirection& back() const { return *back_; }

 private:
  std::shared_ptr<const CopyDirection> there_;
  std::shared_ptr<const CopyDirection> back_;
};

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

#endif  // TANDEM_PARALLEL_CHANNEL_COPY_CHANNEL_H_
