// A rank of tandem's side of the pipeline's and the hybrid's benchmark, which
// does what it is told.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_SERVER_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_SERVER_H_

#include <string>

#include "absl/status/status.h"

namespace tandem {

// What the peers' ranks take as well (tools/bench/peers/pipeline_peer.py).
struct PipelineServerOptions {
  int rank = 0;
  int ranks = 1;
  int pipe = 1;              // of which a replica has as many
  int devices = 2;           // of a rank: cores, a thread each
  int threads = 1;           // for operators
  double learning_rate = 0;  // 0: the case's
  std::string model;         // of a case of tools/bench/pipeline_case.h
  std::string inputs;        // of tools/bench/bench_inputs.h, for one rank
  std::string rendezvous;    // a file that does not exist yet; not for one rank
  std::string commands;      // a FIFO, or any file with lines
};

// Carries out each line of `commands` and answers it with a line of JSON on
// stdout, until the end of the file; what fails answers {"error": "..."}, and
// ends. While it waits for a line it sleeps.
//
//   use SETTING   a pipeline with that setting (pipeline_case.h), from the
//                 initial weights; {"cuts": [first layer of each further
//                 stage]}
//   losses N      N steps; {"losses": [of the whole batch on rank 0, elsewhere
//                 0, ...]}
//   steps N       one step that is not measured, and N that are; {"ms": of a
//                 step, "cpu_ms": this process's processor time a step,
//                 "faults": its page faults a step}
//   alone N       the same for the model in one piece, on every core at the
//                 same time; {"ms": of a core's step, a mean over the cores}
//   stages N      {"forward", "backward_input", "backward_weight": [ms of each
//                 stage for a microbatch], "optimizer": ms of all}; every core
//                 computes all stages, one after the other, at the same time
//   overlap N     N steps; {"steps": [{"all_reduces": [[begin, end] of each
//                 bucket], "backwards": [[begin, end] of each action], both of
//                 this rank, in ms of a clock that all ranks share}, ...]}
//   memory        {"peak_mib": VmHWM}
//
// "alone" and "stages" are for one rank.
absl::Status ServePipeline(const PipelineServerOptions& options);

// Writes `options.inputs`.
absl::Status WriteInputsOf(const PipelineServerOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_SERVER_H_
