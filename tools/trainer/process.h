// What a process chooses for itself: threads, allocator. For programs; a
// library leaves these alone.

#ifndef TANDEM_TOOLS_TRAINER_PROCESS_H_
#define TANDEM_TOOLS_TRAINER_PROCESS_H_

#include <cstdint>

namespace tandem {

// Threads for one rank's operators: `requested`, or OMP_NUM_THREADS, or the
// cores that this process may use (its CPU affinity, its control group's quota)
// shared by `local_world_size` ranks; at least 1. Where the launcher has given
// each rank cores of its own (`bound`: srun and mpirun can), they are not
// shared again.
int IntraOpThreads(int64_t requested, int local_world_size, bool bound);

// Whether this process may use only some of the machine's cores.
bool IsBoundToCores();

// Sets LibTorch's thread count, has tensors come from a caching allocator and
// glibc keep what else is big: the temporaries of a training step are as big in
// every step, and to map, fault and unmap them each time costs several percent
// of it (docs/performance.md). Turns c10d's flight recorder off unless
// TORCH_FR_BUFFER_SIZE is set: it takes a stack trace of each collective, and
// in LibTorch 2.11 its bookkeeping is not safe when several threads issue
// collectives. Call before any of these is used.
void ConfigureProcess(int intra_op_threads);

// LibTorch logs errors alone, or what TORCH_CPP_LOG_LEVEL asks for: c10d warns
// of each socket that breaks, with a stack trace, before we can say which rank
// has ended.
void SetLibTorchLogLevel();

// A connection that another rank has closed is an error of the call that writes
// to it (Gloo's do), and not a signal that ends this process unheard.
void IgnoreBrokenConnections();

// The most memory that this process has held (VmHWM), in MiB; 0 if unknown.
double PeakRssMib();

// Milliseconds since this program was started: since its process was (to 10 ms,
// the kernel's tick). `bazel run` first builds and then becomes the program;
// there, since the program was loaded.
double MillisecondsSinceStart();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_PROCESS_H_
