// Resource usage of this process.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_USAGE_H_
#define TANDEM_TOOLS_BENCH_MEASURE_USAGE_H_

namespace tandem {

struct Usage {
  double wall_ms = 0;
  double cpu_ms = 0;  // of all its threads, system calls included
  double faults = 0;  // page faults served without reading a disk

  static Usage Now();
  Usage operator-(const Usage& earlier) const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_USAGE_H_
