#include "core/graph/side_stream.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tandem {
namespace {

using c10::impl::VirtualGuardImpl;

c10::Stream CurrentOf(c10::Device device) {
  return VirtualGuardImpl(device.type()).getStream(device);
}

void Follow(c10::Stream later, c10::Stream earlier) {
  if (later == earlier) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace

// The stream has high priority: where streams are of a pool, copies between
// devices have those of the other pool, and other threads may give these work
// while this one is captured.
SideStream::SideStream(c10::Device device)
    : stream_(TakeStream(device, /*high_priority=*/true)) {}

SideStream::Scope::Scope(const SideStream& side)
    : before_(CurrentOf(side.stream().device())),
      side_(side.stream()),
      guard_(side_) {
  Follow(side_, before_);
}

SideStream::Scope::~Scope() { Follow(before_, side_); }

}  // namespace tandem
