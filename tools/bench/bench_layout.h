// Where the processes and devices of a side of the benchmarks stand: data x
// pipe.

#ifndef TANDEM_TOOLS_BENCH_BENCH_LAYOUT_H_
#define TANDEM_TOOLS_BENCH_BENCH_LAYOUT_H_

namespace tandem {

struct BenchLayout {
  int replicas = 1;
  int pipe = 1;     // ranks of one replica
  int devices = 1;  // of one rank: cores, a thread each

  int ranks() const { return replicas * pipe; }
  int devices_of_replica() const { return pipe * devices; }

  // The same with a process for each device, as the peers have it.
  BenchLayout OverRanks() const { return {replicas, pipe * devices, 1}; }
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_BENCH_LAYOUT_H_
