// Host waits: where the host stopped for a simulated device, which on a GPU
// leaves the device without work until the host has issued more.

#ifndef TANDEM_CORE_SIM_STREAMS_HOST_WAITS_H_
#define TANDEM_CORE_SIM_STREAMS_HOST_WAITS_H_

#include <cstdint>
#include <map>
#include <string>

namespace tandem {
namespace sim {

// What they were for ("copy to the host", "aten::nonzero", "event", ...), and
// how many there were.
using HostWaits = std::map<std::string, int64_t>;

// Counted are, in asynchronous mode, those that CUDA has, too: waits for
// events, streams and devices, copies to the host and from memory that is not
// pinned, operators whose results' shapes or values the host needs. Those that
// only the simulation needs (a kernel that it does not know) are not.
// Thread-safe.
void CountHostWait(const std::string& what);
// Is it asynchronous mode?
bool CountsHostWaits();

// Waits of all threads and devices so far.
HostWaits CountedHostWaits();

// What has come since `before`.
HostWaits HostWaitsSince(const HostWaits& before);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_STREAMS_HOST_WAITS_H_
