// What an entry of the flight recorder costs.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_FLIGHT_COST_H_
#define TANDEM_TOOLS_BENCH_MEASURE_FLIGHT_COST_H_

namespace tandem {

// Nanoseconds from an entry's scheduling to its end, as a bucket's all-reduce
// is noted, while `threads` do so at the same time: as each of them sees it.
double NanosecondsOfFlightEntry(int threads);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_FLIGHT_COST_H_
