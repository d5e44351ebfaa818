#include "parallel/channel/stream_order.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace tandem {

std::optional<c10::Stream> NewStream(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return std::nullopt;
  try {
    const c10::Stream stream =
        c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
    if (stream.id() == 0) return std::nullopt;  // the default one
    return stream;
  } catch (const c10::Error&) {
    return std::nullopt;  // "Backend doesn't support create a new Stream."
  }
}

c10::Stream CurrentStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
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
