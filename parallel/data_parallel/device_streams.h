// Current streams of several devices, to be those of another thread.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_DEVICE_STREAMS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_DEVICE_STREAMS_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

namespace tandem {

// The calling thread's; those of the CPU, which has none, are left out.
std::vector<c10::Stream> CurrentStreams(
    const std::vector<c10::Device>& devices);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_DEVICE_STREAMS_H_
