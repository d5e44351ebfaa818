// A server for ranks: one of tandem's in a comparison, which trains when it is
// told to, and says how long it took.

#ifndef TANDEM_TOOLS_BENCH_RANK_SERVER_H_
#define TANDEM_TOOLS_BENCH_RANK_SERVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// What the peers' ranks take as well (tools/bench/peers/peer.py), but devices,
// backend, input_shape and batch_size.
struct RankOptions {
  int rank = 0;
  int ranks = 1;
  int pipe = 1;     // of which a replica has as many
  int devices = 1;  // of a rank: cores, a thread each
  int threads = 1;  // for operators
  std::string backend = "shm";
  std::string model;           // of tools/bench/case/workload.h
  std::string device = "cpu";  // another: of one rank with one device
  bool allow_tf32 = false;     // see PrepareDevice (group.h)
  int64_t batch_size = 0;  // of all replicas, to be written; 0: the workload's
  std::vector<int64_t> input_shape;  // of a sample; empty: the workload's
  std::string optimizer;             // empty: the workload's
  std::string dtype = "fp32";
  double learning_rate = 0;  // 0: the workload's
  std::string inputs;        // of tools/bench/rank/inputs.h
  std::string rendezvous;    // a file that does not exist yet; not for one rank
  std::string commands;      // a FIFO, or any file with lines
};

// Carries out each line of `commands` and answers it with a line of JSON on
// stdout, until the end of the file; what fails answers {"error": "..."}, and
// ends. While it waits for a line it sleeps.
//
//   use SETTING      a trainer with that setting (tools/bench/case/setting.h),
//                    from the initial weights; {"cuts": [first layer of each
//                    further stage]}
//   losses N         N steps; {"losses": [this rank's part of the whole
//                    batch's, ...], "kernels": what multiplies}: of tandem's
//                    ranks the first has all of it
//   steps N          one step that is not measured, and N that are, until their
//                    device is done; {"ms": of a step, "cpu_ms": this process's
//                    processor time a step, "faults": its page faults a step}
//   alone N          the same for the model in one piece, on every core of this
//                    rank at the same time; {"ms": of a core's step, a mean}
//   communication N  N steps; {"comm_ms": while a bucket of gradients was on
//                    its way, "exposed_ms": of that, without computation beside
//                    it}
//   memory           {"peak_mib": PeakMib (group.h)}
//
// And of tandem alone:
//
//   overlap N        N steps; {"steps": [TraceSpans (overlap_times.h), ...]}
//   stages N         {"forward", "backward_input", "backward_weight": [ms of
//                    each stage for a microbatch], "optimizer": ms of the
//                    slowest device}, each device on its core at the same time
//   profile N        N steps alone, with every operator timed (op_profile.h)
//   floor            a step alone, its products by themselves, and what all
//                    else moves through memory (step_floor.h), with the rank's
//                    other cores equally busy; "gb_per_s": of memory that all
//                    its cores read and write, a core's
//   gemm             {"mkl_gflops", "one_dnn_gflops"}: of products of large
//                    matrices
//   all_reduce       {"ms": of an all-reduce of as many float32 numbers as the
//                    model has parameters, "gloo_ms": the same over Gloo}
//
// "stages" is for one rank, "all_reduce" for several.
absl::Status ServeRank(const RankOptions& options);

// Writes `options.inputs`.
absl::Status WriteRankInputs(const RankOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_SERVER_H_
