// Streams of the simulated devices. In synchronous mode they are numbers alone:
// work runs when it is issued, and events have always passed.

#ifndef TANDEM_CORE_SIM_STREAMS_STREAMS_H_
#define TANDEM_CORE_SIM_STREAMS_STREAMS_H_

#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/sim/streams/stream_queue.h"

namespace tandem {
namespace sim {

// How many simulated devices there can be.
constexpr int kMostDevices = 16;

// Switches asynchronous mode on, with the delays of StreamQueue; each stream
// has its own sequence of them. Once, before any work.
void UseQueues(int most_delay_us, uint64_t seed);
bool IsAsynchronous();

// What is still queued when the process ends runs before the static objects go
// that exist by now: to be called when an operator has run for the first time,
// for kernels keep such objects (oneDNN's engine). Thread-safe.
void EndQueuesBeforeStaticObjects();
// Has that begun? Work that waits for other ranks gives up then.
bool ProcessEnds();

c10::Stream DefaultStream(int8_t device);
// Another one of the device's, in turn; those of high priority are others. (No
// stream comes before another for it.)
c10::Stream PooledStream(int8_t device, bool high_priority = false);
// One of the device's that nobody else is given: a communicator's, whose work
// waits for other ranks and must hold up nobody. Asynchronous mode alone. It
// ends with ReleaseStream, which runs what is queued first.
c10::Stream NewStream(int8_t device);
void ReleaseStream(c10::Stream stream);
// The calling thread's; the device's default stream at first.
c10::Stream CurrentStream(int8_t device);
// Returns what was current before.
c10::Stream ExchangeStream(c10::Stream stream);

// In asynchronous mode alone.
void Push(c10::Stream stream, std::function<void()> work);

void RecordEvent(Event& event, c10::Stream stream);
// What is queued on the stream from now on waits for the event.
void HoldStream(const Event& event, c10::Stream stream);

// Wait, and throw what failed meanwhile.
bool IsIdle(c10::Stream stream);
void Synchronise(c10::Stream stream);
void SynchroniseDevice(int8_t device);
// Without streams that are somebody's own, whose work may wait for what this
// thread is about to issue; of all devices.
void SynchroniseComputing(int8_t device);
void SynchroniseAll();
// How many threads are in one of these for the device.
int HostThreadsWaiting(int8_t device);

// Host waits: where the host stopped for a simulated device, which on a GPU
// leaves the device without work until the host has issued more.

// What they were for ("copy to the host", "aten::nonzero", "event", ...), and
// how many there were.
using HostWaits = std::map<std::string, int64_t>;

// Waits are counted in asynchronous mode, where CUDA has them, too: waits for
// events, streams and devices, copies to the host and from memory that is not
// pinned, operators whose results' shapes or values the host needs. Waits that
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

#endif  // TANDEM_CORE_SIM_STREAMS_STREAMS_H_
