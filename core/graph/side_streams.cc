#include "core/graph/side_streams.h"

#include <algorithm>

namespace tandem {

SideStreams::SideStreams(const std::vector<c10::Device>& devices) {
  for (const c10::Device device : devices) {
    const bool has =
        std::any_of(sides_.begin(), sides_.end(), [&](const SideStream& each) {
          return each.stream().device() == device;
        });
    if (!has) sides_.emplace_back(device);
  }
}

// A scope makes its device the current one; the first comes last, for that is
// whose work the calling thread issues.
SideStreams::Scope::Scope(const SideStreams& sides) {
  for (auto each = sides.sides_.rbegin(); each != sides.sides_.rend(); ++each) {
    scopes_.push_back(std::make_unique<SideStream::Scope>(*each));
  }
}

SideStreams::Scope::Scope(const SideStreams& sides, c10::Device device) {
  for (const SideStream& each : sides.sides_) {
    if (each.stream().device() != device) continue;
    scopes_.push_back(std::make_unique<SideStream::Scope>(each));
  }
}

SideStreams::Scope::~Scope() {
  while (!scopes_.empty()) scopes_.pop_back();
}

}  // namespace tandem
