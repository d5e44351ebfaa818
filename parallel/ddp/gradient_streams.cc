#include "parallel/ddp/gradient_streams.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "parallel/channel/stream_order.h"

namespace tandem {

std::vector<c10::Stream> GradientStreams(
    const std::vector<FlatBuffer*>& buffers) {
  std::vector<c10::Stream> streams;
  for (const FlatBuffer* buffer : buffers) {
    // Has no streams: nothing to look up in every step.
    if (buffer->grads().is_cpu()) continue;
    const auto stream = torch::autograd::impl::grad_accumulator(
                            buffer->slots().front().parameter)
                            ->stream();
    if (!stream) continue;
    const bool known = std::any_of(
        streams.begin(), streams.end(),
        [&](const auto& each) { return each.device() == stream->device(); });
    if (!known) streams.push_back(*stream);
  }
  return streams;
}

c10::Device DeviceOfGradients(const std::vector<FlatBuffer*>& buffers) {
  return buffers.empty() ? c10::Device(c10::kCPU)
                         : buffers.front()->grads().device();
}

GradientStreamsGuard::GradientStreamsGuard(
    const std::vector<FlatBuffer*>& buffers)
    : streams_(GradientStreams(buffers)) {
  for (const c10::Stream& stream : streams_) {
    own_.push_back(CurrentStream(stream.device()));
  }
  if (!streams_.empty()) guard_.emplace(streams_);
}

GradientStreamsGuard::~GradientStreamsGuard() {
  guard_.reset();
  for (size_t i = 0; i < own_.size(); ++i) {
    if (own_[i] == streams_[i]) continue;
    StreamOrder().FollowProducer(own_[i], streams_[i]);
  }
}

}  // namespace tandem
