// Entry of a program whose ranks talk to each other: torchrun, a script's main
// and init_process_group, in one call.
//
//   absl::Status Train(tandem::Rank& rank) {
//     ...  // rank.world is connected
//   }
//   int main(int argc, char** argv) {
//     return tandem::RunProgram(argc, argv, {"my_program", "Trains."}, Train);
//   }
//
//   my_program --nproc_per_node=4      four ranks on this machine
//   torchrun --no-python my_program    or by any launcher of docs/launching.md

#ifndef TANDEM_CORE_RUN_RUN_PROGRAM_H_
#define TANDEM_CORE_RUN_RUN_PROGRAM_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "core/backend/communicator_options.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"

namespace tandem {

// One rank of a running program.
struct Rank {
  const Launch& launch;
  Communicator& world;  // all ranks

  int rank() const { return launch.rank; }
  int size() const { return launch.world_size; }
  int local_rank() const { return launch.local_rank; }
};

struct RunOptions {
  // What its messages begin with, and its log files.
  std::string name;
  // What --help says above the flags.
  std::string usage;
  // See RanksProgram::check.
  std::function<absl::Status(const Launch& first)> check = {};
  CommunicatorOptions communication = {};
  // Threads of a rank's operators; 0: OMP_NUM_THREADS, else this host's cores
  // shared by its ranks.
  int intra_op_threads = 0;
};

// What main returns: see RunRanks (core/run/run_ranks.h). Call it first in
// main: on a busy machine it starts the program anew (WaitPassivelyWhereBusy,
// core/program/openmp_waits.h). Each rank starts its log, takes its share of
// the cores, connects to the others, and calls `run`; an exception of
// LibTorch's becomes a Status. When `run` fails the other ranks are told why,
// and end.
int RunProgram(int argc, char** argv, const RunOptions& options,
               const std::function<absl::Status(Rank& rank)>& run);

}  // namespace tandem

#endif  // TANDEM_CORE_RUN_RUN_PROGRAM_H_
