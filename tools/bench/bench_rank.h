// One of tandem's ranks in the benchmark: trains when it is told to, and says
// how long it took.

#ifndef TANDEM_TOOLS_BENCH_BENCH_RANK_H_
#define TANDEM_TOOLS_BENCH_BENCH_RANK_H_

#include <string>

#include "absl/status/status.h"

namespace tandem {

// What the peers' ranks take as well (tools/bench/peers/ddp_peer.py).
struct BenchRankOptions {
  int rank = 0;
  int ranks = 1;
  int threads = 1;         // for operators
  int core = -1;           // to which the process is bound; -1: to none
  std::string model;       // a case of tools/bench/bench_case.h
  std::string inputs;      // of tools/bench/bench_inputs.h
  std::string rendezvous;  // a file that does not exist yet
  std::string commands;    // a FIFO, or any file with lines
  std::string backend;
  bool find_unused = false;  // find_unused_parameters instead of static_graph
};

// Carries out each line of `commands` and answers it with a line of JSON on
// stdout, until the end of the file; what fails answers {"error": "..."}, and
// ends. While it waits for a line it sleeps.
//
//   losses N      N steps from the initial weights; {"losses": [of the global
//                 batch, ...]}
//   steps N       one step that is not measured, and N that are; {"ms": of a
//                 step, "cpu_ms": this process's processor time a step,
//                 "faults": its page faults a step}
//   overlap N     N steps; {"comm_ms": while a bucket of gradients was on its
//                 way, "exposed_ms": of that, without computation beside it}
//   local N       the same as steps N, on a copy of the model that talks to
//                 nobody
//   profile N     N local steps, with every operator timed (op_profile.h)
//   memory        {"peak_mib": VmHWM}
//   gemm          {"mkl_gflops", "one_dnn_gflops"}: of products of large
//                 matrices
//   all_reduce    {"ms": of an all-reduce of as many float32 numbers as the
//                 model has parameters, "gloo_ms": the same over Gloo}
absl::Status RunBenchRank(const BenchRankOptions& options);

// Writes `options.inputs` for `options.ranks` ranks of `options.model`.
absl::Status WriteInputsOf(const BenchRankOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_BENCH_RANK_H_
