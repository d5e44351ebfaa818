// Host clocks: how far the steady clocks of a group's hosts are apart.

#ifndef TANDEM_CORE_COMM_HOST_CLOCKS_H_
#define TANDEM_CORE_COMM_HOST_CLOCKS_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/instrument/clock_offset.h"

namespace tandem {

struct HostClock {
  std::string host;  // its name, for a person
  // The same text for processes that share the clock: the kernel's boot, of
  // which containers of one machine have the same.
  std::string identity;
  std::function<std::chrono::steady_clock::time_point()> now;

  static HostClock OfThisHost();
};

// How much more the clock of rank 0's host shows than that of each rank's, by
// rank: 0, and certain, on rank 0's own host. Of every other host one rank
// exchanges messages with rank 0, 16 times there and back: the same on every
// rank. Collective.
absl::StatusOr<std::vector<ClockOffset>> ClockOffsets(
    Communicator& world, const HostClock& clock = HostClock::OfThisHost());

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_HOST_CLOCKS_H_
