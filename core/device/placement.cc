#include "core/device/placement.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <unordered_map>

#include "core/device/own_stream.h"

namespace tandem {
namespace {

using c10::impl::VirtualGuardImpl;

// On a stream of copies alone, before what the device's current stream is given
// from now on.
at::Tensor CopyAhead(c10::Device device, const at::Tensor& pinned) {
  const VirtualGuardImpl devices(device.type());
  const c10::Stream copies = CopyStream(device);
  const c10::Stream computes = devices.getStream(device);
  at::Tensor placed;
  {
    const c10::StreamGuard guard(copies);
    placed = pinned.to(device, pinned.scalar_type(), /*non_blocking=*/true);
  }
  c10::Event copied(device.type());
  copied.record(copies);
  copied.block(computes);
  // Its memory is the copies' stream's, and must outlive this one's use of it.
  devices.recordDataPtrOnStream(placed.storage().data_ptr(), computes);
  return placed;
}

}  // namespace

c10::Stream CopyStream(c10::Device device) {
  static auto* mutex = new std::mutex;
  static auto* streams = new std::unordered_map<c10::Device, OwnStream>;
  const std::lock_guard<std::mutex> lock(*mutex);
  OwnStream& stream = (*streams)[device];
  if (stream == nullptr) stream = TakeStream(device);
  return *stream;
}

at::Tensor PlaceOn(c10::Device device, const at::Tensor& tensor) {
  if (tensor.device() == device) return tensor;
  const bool is_pinned = tensor.device().is_cpu() && tensor.is_pinned();
  return is_pinned ? CopyAhead(device, tensor) : tensor.to(device);
}

at::Tensor SendTo(c10::Device device, const at::Tensor& tensor) {
  const bool leaves_host = tensor.device().is_cpu() && !device.is_cpu();
  return PlaceOn(device, leaves_host ? tensor.pin_memory() : tensor);
}

}  // namespace tandem
