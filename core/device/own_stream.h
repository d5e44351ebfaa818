// Own stream: a stream of a device that nobody else is given.

#ifndef TANDEM_CORE_DEVICE_OWN_STREAM_H_
#define TANDEM_CORE_DEVICE_OWN_STREAM_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>

namespace tandem {

// Given back with the last copy, with what it has still to run. Never null.
using OwnStream = std::shared_ptr<const c10::Stream>;

// LibTorch hands the streams of a pool round, and NCCL takes its own from
// there: a copy on one of those would stand in line behind a collective that
// waits for other ranks. So on CUDA this one is of no pool. Elsewhere it is one
// of the pool that no other owner has, as long as there is one.
//
// Throws LibTorch's errors: the device has no streams, say. On the CPU it is
// the default stream. Thread-safe.
OwnStream TakeStream(c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_OWN_STREAM_H_
