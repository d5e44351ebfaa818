// Memory in a trace: counters of what the process and a device hold.

#ifndef TANDEM_CORE_MEMORY_MEMORY_TRACE_H_
#define TANDEM_CORE_MEMORY_MEMORY_TRACE_H_

#include <c10/core/Device.h>

namespace tandem {

// Samples, while the trace of the process is on: "resident memory" of the
// process, and of a device whose memory is counted (MemoryOf) what is
// allocated, by category where categories are known. In bytes. Off, it costs
// one relaxed load. Thread-safe.
void TraceMemory(c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_MEMORY_MEMORY_TRACE_H_
