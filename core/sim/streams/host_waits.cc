#include "core/sim/streams/host_waits.h"

#include <mutex>

#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

struct Counts {
  std::mutex mutex;
  HostWaits waits;
};

Counts& AllCounts() {
  static auto* counts = new Counts;
  return *counts;
}

}  // namespace

void CountHostWait(const std::string& what) {
  if (!IsAsynchronous()) return;
  const std::lock_guard<std::mutex> lock(AllCounts().mutex);
  ++AllCounts().waits[what];
}

bool CountsHostWaits() { return IsAsynchronous(); }

HostWaits CountedHostWaits() {
  const std::lock_guard<std::mutex> lock(AllCounts().mutex);
  return AllCounts().waits;
}

HostWaits HostWaitsSince(const HostWaits& before) {
  HostWaits since;
  for (const auto& [what, count] : CountedHostWaits()) {
    const auto found = before.find(what);
    const int64_t earlier = found == before.end() ? 0 : found->second;
    if (count > earlier) since[what] = count - earlier;
  }
  return since;
}

}  // namespace sim
}  // namespace tandem
