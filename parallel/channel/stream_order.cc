#include "parallel/channel/stream_order.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace tandem {

OwnStream NewStream(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return nullptr;
  try {
    OwnStream stream = TakeStream(device);
    return stream->id() == 0 ? nullptr : stream;  // 0: the default one
  } catch (const c10::Error&) {
    return nullptr;  // "Backend doesn't support create a new Stream."
  }
}

c10::Stream CurrentStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

std::vector<c10::Stream> CurrentStreams(
    const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (const c10::Device& device : devices) {
    if (!device.is_cpu()) streams.push_back(CurrentStream(device));
  }
  return streams;
}

void StreamOrder::FollowProducer(const c10::Stream& copying,
                                 const c10::Stream& producer) const {
  c10::Event produced(producer.device_type());
  produced.record(producer);
  produced.block(copying);
}

void StreamOrder::FollowCopy(const c10::Stream& consumer,
                             const c10::Event& copied) const {
  copied.block(consumer);
}

void StreamOrder::Keep(const at::Tensor& tensor,
                       const c10::Stream& stream) const {
  if (!tensor.has_storage()) return;
  c10::impl::VirtualGuardImpl(stream.device_type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

}  // namespace tandem
