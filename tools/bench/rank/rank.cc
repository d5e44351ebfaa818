// A rank of tandem's side of tools/bench_pipeline or tools/bench_hybrid, which
// start it. See pipeline_server.h.
//
// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/program/command_line.h"
#include "tools/bench/pipeline_server.h"

ABSL_FLAG(int, rank, 0, "This rank.");
ABSL_FLAG(int, ranks, 1, "How many ranks there are.");
ABSL_FLAG(int, pipe, 1, "Ranks of a replica.");
ABSL_FLAG(int, core, -1, "Not used: each device takes a core.");
ABSL_FLAG(std::string, rendezvous, "", "File where ranks meet.");
ABSL_FLAG(int, devices, 2, "This rank's: cores, a thread each.");
ABSL_FLAG(double, learning_rate, 0, "0: the case's.");
ABSL_FLAG(int, threads, 1, "Threads for operators.");
ABSL_FLAG(std::string, model, "", "Model of the benchmark.");
ABSL_FLAG(std::string, inputs, "", "File with weights and batches.");
ABSL_FLAG(bool, write_inputs, false, "Write that file, and end.");
ABSL_FLAG(std::string, commands, "", "File that commands come from.");

namespace tandem {
namespace {

PipelineServerOptions OptionsFromFlags() {
  PipelineServerOptions options;
  options.rank = absl::GetFlag(FLAGS_rank);
  options.ranks = absl::GetFlag(FLAGS_ranks);
  options.pipe = absl::GetFlag(FLAGS_pipe);
  options.devices = absl::GetFlag(FLAGS_devices);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  options.rendezvous = absl::GetFlag(FLAGS_rendezvous);
  options.model = absl::GetFlag(FLAGS_model);
  options.inputs = absl::GetFlag(FLAGS_inputs);
  options.commands = absl::GetFlag(FLAGS_commands);
  return options;
}

absl::Status Run(int argc, char** argv) {
  const absl::Status parsed =
      ParseCommandLine(
          argc, argv,
          "A rank of bench_pipeline or bench_hybrid, which start it.")
          .status();
  if (!parsed.ok()) return parsed;
  const PipelineServerOptions options = OptionsFromFlags();
  if (absl::GetFlag(FLAGS_write_inputs)) return WriteInputsOf(options);
  return ServePipeline(options);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::Status status = tandem::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "pipeline_rank: %s\n", status.ToString().c_str());
  return 1;
}
