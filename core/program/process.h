// Process settings: threads and allocator. For programs; a library leaves these
// alone.

#ifndef TANDEM_CORE_PROGRAM_PROCESS_H_
#define TANDEM_CORE_PROGRAM_PROCESS_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace tandem {

// The threads that are asked for: by `flag` (--intra_op_threads) unless it is
// 0, or by OMP_NUM_THREADS (the first number of a list). 0: neither says.
// InvalidArgument when the flag is not from 0 to `most`, or OMP_NUM_THREADS is
// no number from 1 to `most`.
absl::StatusOr<int> RequestedThreads(int64_t flag, int most);

// Use of this host's cores.
struct CoreSharing {
  int ranks = 1;            // on this host
  int threads_of_rank = 1;  // of each rank that run operators at the same time
  // The launcher has given each rank cores of its own (srun and mpirun can).
  bool bound = false;
};

// Threads for the operators that one of a rank's threads runs: `requested`
// unless it is 0, else its share of the cores that this process may use (its
// CPU affinity, its control group's quota); at least 1.
int IntraOpThreads(int requested, const CoreSharing& sharing);

// Whether this process may use only some of the machine's cores.
bool IsBoundToCores();

// Sets LibTorch's thread count, has tensors come from a caching allocator and
// glibc keep what else is big: the temporaries of a training step are as big in
// every step, and to map, fault and unmap them each time costs several percent
// of it (docs/performance.md). Has memory of GPUs come from segments that grow,
// unless PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF is set. Turns c10d's
// flight recorder of the host's works off. Call before any of these is used,
// and before there are other threads.
void ConfigureProcess(int intra_op_threads);

// LibTorch logs errors alone, or what TORCH_CPP_LOG_LEVEL asks for: c10d warns
// of each socket that breaks, with a stack trace, before we can say which rank
// has ended.
void SetLibTorchLogLevel();

// A connection that another rank has closed, and an output that nobody reads
// any more (train | head), is an error of the call that writes to it, and not a
// signal that ends this process unheard.
void IgnoreBrokenConnections();

// Has this process, and those that it starts, open as many files as the hard
// limit allows, 65,536 at most: the soft one (ulimit -n) is for programs that
// cannot have so many.
void RaiseFileLimit();

// A file that grows beyond what `ulimit -f` allows is an error of the call that
// writes to it, and not a signal that ends this process unheard.
void IgnoreFileSizeSignal();

// The most memory that this process has held (VmHWM), in MiB; 0 if unknown.
double PeakRssMib();
// What it holds now (VmRSS).
double RssMib();

// Milliseconds since this program was started: since its process was (to 10 ms,
// the kernel's tick). `bazel run` first builds and then becomes the program;
// there, since the program was loaded.
double MillisecondsSinceStart();

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_PROCESS_H_
