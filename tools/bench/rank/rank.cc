// One of tandem's ranks in a comparison of //tools:bench, which starts it. See
// server.h.
//
// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/program/command_line.h"
#include "tools/bench/rank/server.h"

ABSL_FLAG(int, rank, 0, "This rank.");
ABSL_FLAG(int, ranks, 1, "How many ranks there are.");
ABSL_FLAG(int, pipe, 1, "Ranks of a replica.");
ABSL_FLAG(int, core, -1, "Not used: each device takes a core.");
ABSL_FLAG(int, devices, 1, "This rank's: cores, a thread each.");
ABSL_FLAG(int, threads, 1, "Threads for operators.");
ABSL_FLAG(std::string, backend, "shm", "What moves the gradients.");
ABSL_FLAG(std::string, model, "", "Model of the benchmark.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or sim.");
ABSL_FLAG(bool, allow_tf32, false, "On GPUs: fp32 may be rounded to TF32.");
ABSL_FLAG(std::vector<std::string>, input_shape, {},
          "Shape of one sample. Empty: the model's.");
ABSL_FLAG(int64_t, batch_size, 0, "Samples of all replicas. 0: the model's.");
ABSL_FLAG(std::string, optimizer, "", "sgd or adamw. Empty: the model's.");
ABSL_FLAG(std::string, dtype, "fp32", "fp32, or bf16 under autocast.");
ABSL_FLAG(double, learning_rate, 0, "0: the model's.");
ABSL_FLAG(std::string, inputs, "", "File with weights and batches.");
ABSL_FLAG(bool, write_inputs, false, "Write that file, and end.");
ABSL_FLAG(std::string, rendezvous, "", "File where ranks meet.");
ABSL_FLAG(std::string, commands, "", "File that commands come from.");

namespace tandem {
namespace {

absl::StatusOr<std::vector<int64_t>> InputShape() {
  std::vector<int64_t> shape;
  for (const std::string& size : absl::GetFlag(FLAGS_input_shape)) {
    if (!absl::SimpleAtoi(size, &shape.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--input_shape: '", size, "' is no number"));
    }
  }
  return shape;
}

absl::StatusOr<RankOptions> OptionsFromFlags() {
  RankOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.input_shape, InputShape());
  options.device = absl::GetFlag(FLAGS_device);
  options.allow_tf32 = absl::GetFlag(FLAGS_allow_tf32);
  options.rank = absl::GetFlag(FLAGS_rank);
  options.ranks = absl::GetFlag(FLAGS_ranks);
  options.pipe = absl::GetFlag(FLAGS_pipe);
  options.devices = absl::GetFlag(FLAGS_devices);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.model = absl::GetFlag(FLAGS_model);
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  options.optimizer = absl::GetFlag(FLAGS_optimizer);
  options.dtype = absl::GetFlag(FLAGS_dtype);
  options.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  options.inputs = absl::GetFlag(FLAGS_inputs);
  options.rendezvous = absl::GetFlag(FLAGS_rendezvous);
  options.commands = absl::GetFlag(FLAGS_commands);
  return options;
}

absl::Status Run(int argc, char** argv) {
  TANDEM_RETURN_IF_ERROR(
      ParseCommandLine(argc, argv, "A rank of the benchmarks, which start it.")
          .status());
  TANDEM_ASSIGN_OR_RETURN(const RankOptions options, OptionsFromFlags());
  if (absl::GetFlag(FLAGS_write_inputs)) return WriteRankInputs(options);
  return ServeRank(options);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::Status status = tandem::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "rank: %s\n", status.ToString().c_str());
  return 1;
}
