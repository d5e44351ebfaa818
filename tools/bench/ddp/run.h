// One case of the benchmark: tandem and its peers side by side.

#ifndef TANDEM_TOOLS_BENCH_RUN_CASE_H_
#define TANDEM_TOOLS_BENCH_RUN_CASE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/bench_case.h"

namespace tandem {

struct BenchOptions {
  std::vector<std::string> peers = {"eager", "compile"};
  bool compile_may_fail = true;  // torch.compile does not run everywhere
  std::string python;
  std::string backend;
  int ranks = 2;
  int threads = 1;
  int rounds = 9;
  int64_t steps = 0;   // in a round; 0: as the case says
  std::string folder;  // scratch, an existing one
};

// What one side came to. Times are in milliseconds; where ranks differ, they
// are the slowest rank's.
struct SideResult {
  std::string name;              // "tandem", or a peer (--peers)
  std::string failure;           // why there are no figures; empty: there are
  std::vector<double> losses;    // of the first steps, means over the ranks
  std::vector<double> step_ms;   // a step, by round
  std::vector<double> local_ms;  // a step without the other ranks
  double cpu_ms = 0;             // processor time of a step
  double faults = 0;             // page faults of a step
  double comm_ms = 0;            // while a bucket was on its way
  double exposed_ms = 0;         // of that, without computation beside it
  double peak_mib = 0;           // the most memory of a rank
};

struct CaseResult {
  BenchCase bench;
  SideResult ours;
  std::vector<SideResult> peers;
  // Of a rank, while all ranks multiply: at::mm's rate, and MatrixProduct's.
  double mkl_gflops = 0;
  double one_dnn_gflops = 0;
  // Of as many numbers as the model has gradients, over tandem's backend and
  // over Gloo, with nothing else to do.
  double all_reduce_ms = 0;
  double gloo_all_reduce_ms = 0;
  nlohmann::json profile;  // of rank 0's local step: see op_profile.h
};

// Starts all sides from the same weights and batches, and compares losses
// before it measures anything; then the sides take turns. Prints what it does
// on stderr.
//
// An error when a side fails or losses differ. Only a peer "compile" that
// cannot compile is none where options.compile_may_fail: its result says why.
absl::StatusOr<CaseResult> RunCase(const BenchCase& bench,
                                   const BenchOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RUN_CASE_H_
