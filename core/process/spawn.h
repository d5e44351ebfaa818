// Spawned ranks: a function run by several processes, torch.multiprocessing's
// spawn, by fork.

#ifndef TANDEM_CORE_PROCESS_SPAWN_H_
#define TANDEM_CORE_PROCESS_SPAWN_H_

#include <chrono>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tandem {

struct SpawnOptions {
  // How long all ranks together may take; nothing: as long as they do.
  std::optional<std::chrono::milliseconds> timeout;
  // How long ranks have to end after SIGTERM when another has failed.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

// Calls fn(0) .. fn(nprocs - 1), each in a child process, and waits for all.
//
// Call it before this process has any other thread than the signal thread
// (core/process/signal_thread.h), for a fork copies only the calling one:
// LibTorch's thread pools, once used, would leave every child with locks that
// nobody opens and pools that nobody serves. So build tensors and models inside
// `fn`. With other threads about: FailedPrecondition.
//
// A child ends as fn returns, without running destructors of globals. The first
// rank that fails ends the others, and its failure is returned, the rank named:
//   fn's own status, its code kept; Internal for an exception that fn let out;
//   Aborted for a rank that exited or was killed before fn returned;
//   DeadlineExceeded, naming the ranks that still ran, after the timeout;
//   InvalidArgument for nprocs < 0.
// Children are killed when the calling thread ends, however that came about.
absl::Status Spawn(absl::FunctionRef<absl::Status(int rank)> fn, int nprocs,
                   const SpawnOptions& options = {});

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_SPAWN_H_
