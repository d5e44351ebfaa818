// Tandem's side of tools/bench_pipeline, which starts it. See
// pipeline_server.h.
//
// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/command_line.h"
#include "tools/bench/pipeline_server.h"

ABSL_FLAG(int, rank, 0, "0: all devices are this process's.");
ABSL_FLAG(int, ranks, 1, "1.");
ABSL_FLAG(int, core, -1, "Not used: each device takes a core.");
ABSL_FLAG(std::string, rendezvous, "", "Not used: there are no others.");
ABSL_FLAG(int, devices, 2, "Cores, a thread each.");
ABSL_FLAG(int, threads, 1, "Threads for operators.");
ABSL_FLAG(std::string, model, "", "Model of the benchmark.");
ABSL_FLAG(std::string, inputs, "", "File with weights and batches.");
ABSL_FLAG(bool, write_inputs, false, "Write that file, and end.");
ABSL_FLAG(std::string, commands, "", "File that commands come from.");

namespace tandem {
namespace {

PipelineServerOptions OptionsFromFlags() {
  PipelineServerOptions options;
  options.devices = absl::GetFlag(FLAGS_devices);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.model = absl::GetFlag(FLAGS_model);
  options.inputs = absl::GetFlag(FLAGS_inputs);
  options.commands = absl::GetFlag(FLAGS_commands);
  return options;
}

absl::Status Run(int argc, char** argv) {
  const absl::Status parsed =
      ParseCommandLine(argc, argv, "A side of bench_pipeline, which starts it.")
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
