// Simulated devices: sim:0, sim:1, ... in host memory, for rehearsing what runs
// on several GPUs on a machine without any. docs/rehearsal.md.
//
// Their tensors carry a device that is checked; operators run the CPU's kernels
// and give the CPU's bits; memory is counted and may be capped; a tensor's
// pointer cannot be used on the host. LibTorch knows them as its "PrivateUse1"
// backend (torch.utils.rename_privateuse1_backend in Python).

#ifndef TANDEM_CORE_SIM_SIM_H_
#define TANDEM_CORE_SIM_SIM_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/sim/memory/memory.h"

namespace tandem {

struct SimOptions {
  // sim:0 to sim:(devices - 1); 1 to 16.
  int devices = 16;
  // Memory of each device, in bytes; 0: as much as the host has.
  int64_t memory = 0;
  // Operators are queued on streams, each with a thread, instead of run when
  // they are called: what does not wait for another stream's results, or for
  // the device's before it looks at them, gets wrong values or an error at the
  // next synchronisation, as on a GPU.
  bool async = false;
  // In asynchronous mode: each piece of work is held up for a random time of so
  // many microseconds at most.
  int most_delay_us = 0;
  uint64_t delay_seed = 0;
  // They compute nothing and have no memory: tensors are shapes, and books are
  // kept as if they were more (core/sim/imagined). HostView
  // (core/device/host_memory.h) of theirs is a meta tensor. Not asynchronous.
  bool imagined = false;
};

// Makes this process's simulated devices. For programs and tests, at their
// start: before any tensor whose memory is to be counted and before the first
// backward. It takes the place of the process's CPU allocator and makes "sim"
// its accelerator, so it is refused (FailedPrecondition) where LibTorch can use
// CUDA, and a second time with other options. Stays until the process ends.
absl::Status EnableSim(const SimOptions& options = {});

// Has EnableSim succeeded in this process?
bool SimIsEnabled();

// sim:index.
c10::Device SimDevice(int index);

}  // namespace tandem

#endif  // TANDEM_CORE_SIM_SIM_H_
