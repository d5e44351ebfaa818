// Core affinity: which core a rank or a thread of the benchmarks keeps to, and
// what a process has used.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_CORES_H_
#define TANDEM_TOOLS_BENCH_MEASURE_CORES_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// The index-th of the cores that the calling thread may use; -1 where there are
// fewer than `count`.
int CoreNumber(int index, int count);

// Cores of `count` devices from the first-th of `all` on.
std::vector<int> CoreNumbers(int first, int count, int all);

// Binds the calling thread, and those that it starts from now on. -1: to none.
absl::Status BindToCore(int core);

// Runs `work` on a thread of each core, at the same time; the first error.
absl::Status OnEachCore(const std::vector<int>& cores,
                        const std::function<absl::Status(size_t index)>& work);

// Resource usage of this process.
struct Usage {
  double wall_ms = 0;
  double cpu_ms = 0;  // of all its threads, system calls included
  double faults = 0;  // page faults served without reading a disk

  static Usage Now();
  Usage operator-(const Usage& earlier) const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_CORES_H_
