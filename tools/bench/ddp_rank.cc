// One of tandem's ranks in tools/bench_ddp, which starts it. See bench_rank.h.
//
// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/program/command_line.h"
#include "tools/bench/bench_rank.h"

ABSL_FLAG(int, rank, 0, "This rank.");
ABSL_FLAG(int, ranks, 1, "How many ranks there are.");
ABSL_FLAG(int, threads, 1, "Threads for operators.");
ABSL_FLAG(int, core, -1, "Core to which the process is bound; -1: none.");
ABSL_FLAG(std::string, model, "", "Case of the benchmark.");
ABSL_FLAG(std::string, inputs, "", "File with weights and batches.");
ABSL_FLAG(bool, write_inputs, false, "Write that file, and end.");
ABSL_FLAG(std::string, rendezvous, "", "File where ranks meet.");
ABSL_FLAG(std::string, commands, "", "File that commands come from.");
ABSL_FLAG(std::string, backend, "shm", "What moves the gradients.");
ABSL_FLAG(bool, find_unused_parameters, false, "Instead of static_graph.");

namespace tandem {
namespace {

BenchRankOptions OptionsFromFlags() {
  BenchRankOptions options;
  options.rank = absl::GetFlag(FLAGS_rank);
  options.ranks = absl::GetFlag(FLAGS_ranks);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.core = absl::GetFlag(FLAGS_core);
  options.model = absl::GetFlag(FLAGS_model);
  options.inputs = absl::GetFlag(FLAGS_inputs);
  options.rendezvous = absl::GetFlag(FLAGS_rendezvous);
  options.commands = absl::GetFlag(FLAGS_commands);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.find_unused = absl::GetFlag(FLAGS_find_unused_parameters);
  return options;
}

absl::Status Run(int argc, char** argv) {
  const absl::Status parsed =
      ParseCommandLine(argc, argv, "A rank of bench_ddp, which starts it.")
          .status();
  if (!parsed.ok()) return parsed;
  const BenchRankOptions options = OptionsFromFlags();
  if (absl::GetFlag(FLAGS_write_inputs)) return WriteInputsOf(options);
  return RunBenchRank(options);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::Status status = tandem::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "ddp_rank: %s\n", status.ToString().c_str());
  return 1;
}
