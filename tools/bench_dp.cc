// DataParallel against DistributedDataParallel, one device and LibTorch's own
// data_parallel, side by side. docs/data_parallel.md, or --help.

#include <ATen/Parallel.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/device/device.h"
#include "core/program/process.h"
#include "core/sim/sim.h"
#include "tools/bench/data_parallel/nets.h"
#include "tools/bench/data_parallel/run.h"
#include "tools/bench/data_parallel/ways.h"
#include "tools/bench/process/program.h"

ABSL_FLAG(std::vector<std::string>, models, {},
          "Which networks: wide, conv. Empty: all.");
ABSL_FLAG(int, devices, 2, "How many devices share a batch.");
ABSL_FLAG(int, rounds, 7, "How often the ways take turns.");
ABSL_FLAG(int, steps, 10, "Steps of a turn.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains the same network on the same batches in turns: on one device, by\n"
    "DataParallel, by LibTorch's own data_parallel and by\n"
    "DistributedDataParallel, whose losses must agree before times are taken.\n"
    "On GPUs where there are enough, else on simulated devices, which work at\n"
    "the same time as far as there are cores.\n\n"
    "  bench_dp                            all networks, two devices\n"
    "  bench_dp --models=conv --devices=4  one, four devices\n";

absl::StatusOr<std::vector<c10::Device>> DevicesToMeasure(int count) {
  DeviceRequest request;
  request.devices_per_rank = count;
  auto gpus = DevicesOf(request, c10::DeviceType::CUDA);
  if (gpus.ok()) return gpus;
  SimOptions sim;
  sim.devices = count;
  TANDEM_RETURN_IF_ERROR(EnableSim(sim));
  std::vector<c10::Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(SimDevice(i));
  return devices;
}

absl::Status CheckFlags() {
  std::vector<std::string> known;
  for (const BenchProblem& each : BenchProblems()) known.push_back(each.name);
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("models", absl::GetFlag(FLAGS_models), known));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("devices", absl::GetFlag(FLAGS_devices), 2));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("rounds", absl::GetFlag(FLAGS_rounds), 1));
  return CheckAtLeast("steps", absl::GetFlag(FLAGS_steps), 1);
}

bool IsAsked(const std::string& name) {
  const std::vector<std::string> asked = absl::GetFlag(FLAGS_models);
  if (asked.empty()) return true;
  for (const std::string& each : asked) {
    if (each == name) return true;
  }
  return false;
}

absl::Status Run(const std::string& /*folder*/) {
  TANDEM_RETURN_IF_ERROR(CheckFlags());
  ConfigureProcess(/*intra_op_threads=*/1);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices,
                          DevicesToMeasure(absl::GetFlag(FLAGS_devices)));
  RunLength length;
  length.rounds = absl::GetFlag(FLAGS_rounds);
  length.steps = absl::GetFlag(FLAGS_steps);
  absl::PrintF("%d devices (%s, ...), one thread for operators each\n",
               static_cast<int>(devices.size()), devices[0].str());
  for (const BenchProblem& problem : BenchProblems()) {
    if (!IsAsked(problem.name)) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::vector<NamedWay> ways,
                            MakeTrainingWays(problem, devices));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<WayResult> results,
                            CompareWays(problem, ways, length));
    absl::PrintF("\n%s", WaysTable(problem, results));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_dp", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
