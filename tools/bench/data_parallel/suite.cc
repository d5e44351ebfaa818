#include "tools/bench/data_parallel/suite.h"

#include <c10/core/Device.h>

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/device.h"
#include "core/program/process.h"
#include "core/sim/sim.h"
#include "tools/bench/data_parallel/methods.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

constexpr double kFarthest = 1e-4;

absl::Status CompareLosses(const std::vector<BenchBatch>& batches,
                           const std::vector<NamedMethod>& ways,
                           std::vector<MethodResult>& results) {
  for (size_t step = 0; step < batches.size(); ++step) {
    double first = 0;
    for (size_t i = 0; i < ways.size(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(const double loss,
                              ways[i].way->Step(batches[step]));
      if (i == 0) first = loss;
      const double apart = std::abs(loss - first);
      results[i].apart = std::max(results[i].apart, apart);
      if (apart <= kFarthest) continue;
      return absl::InternalError(absl::StrCat(
          "step ", step + 1, ": the loss of ", ways[i].name, " is ", loss,
          ", that of ", ways[0].name, " ", first, ": not the same training"));
    }
  }
  return absl::OkStatus();
}

absl::Status Measure(const std::vector<BenchBatch>& batches, int steps,
                     TrainingMethod& way, MethodResult& result) {
  const Usage before = Usage::Now();
  for (int step = 0; step < steps; ++step) {
    const BenchBatch& batch =
        batches[static_cast<size_t>(step) % batches.size()];
    TANDEM_RETURN_IF_ERROR(way.Step(batch).status());
  }
  const Usage used = Usage::Now() - before;
  result.wall_ms.push_back(used.wall_ms / steps);
  result.cpu_ms.push_back(used.cpu_ms / steps);
  return absl::OkStatus();
}

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

absl::Status CheckFlags(const BenchFlags& flags, const RunLength& length) {
  std::vector<std::string> known;
  for (const BenchProblem& each : BenchProblems()) known.push_back(each.name);
  TANDEM_RETURN_IF_ERROR(CheckAmong("cases", flags.cases, known));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("devices", flags.devices, 2));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", length.rounds, 1));
  return CheckAtLeast("steps", length.steps, 1);
}

bool IsAsked(const std::string& name, const BenchFlags& flags) {
  return flags.cases.empty() || absl::c_linear_search(flags.cases, name);
}

absl::StatusOr<ProblemResult> Measure(const BenchProblem& problem,
                                      const std::vector<c10::Device>& devices,
                                      const RunLength& length) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<NamedMethod> ways,
                          MakeTrainingMethods(problem, devices));
  ProblemResult result;
  result.problem = problem;
  TANDEM_ASSIGN_OR_RETURN(result.ways, CompareMethods(problem, ways, length));
  return result;
}

}  // namespace

absl::StatusOr<std::vector<MethodResult>> CompareMethods(
    const BenchProblem& problem, const std::vector<NamedMethod>& ways,
    const RunLength& length) {
  std::vector<MethodResult> results;
  for (const NamedMethod& each : ways)
    results.push_back({each.name, 0, {}, {}});
  std::vector<BenchBatch> batches;
  for (int step = 0; step < length.checked_steps; ++step) {
    batches.push_back(StepBatch(problem, step));
  }
  TANDEM_RETURN_IF_ERROR(CompareLosses(batches, ways, results));
  for (int round = 0; round < length.rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      TANDEM_RETURN_IF_ERROR(
          Annotate(Measure(batches, length.steps, *ways[i].way, results[i]),
                   ways[i].name));
    }
  }
  return results;
}

std::vector<Table> DataParallelTables(const std::vector<ProblemResult>& results,
                                      const std::string& devices) {
  Table cases = {"cases",
                 {{"name"},
                  {"way"},
                  {"step", "ms"},
                  {"ratio", "", 2},
                  {"ratio_min", "", 2},
                  {"ratio_max", "", 2},
                  {"cpu", "ms"},
                  {"losses_apart"}}};
  Table problems = {"problems", {{"name"}, {"what"}, {"batch"}, {"devices"}}};
  for (const ProblemResult& result : results) {
    const BenchProblem& problem = result.problem;
    problems.Add({problem.name, problem.what, problem.batch_size, devices});
    for (const MethodResult& each : result.ways) {
      const Ratio ratio = PairedRatio(result.ways[0].wall_ms, each.wall_ms);
      cases.Add({problem.name, each.name, Median(each.wall_ms), ratio.ratio,
                 ratio.min, ratio.max, Median(each.cpu_ms), each.apart});
    }
  }
  return {cases, problems};
}

absl::StatusOr<SuiteReport> RunDataParallelSuite(
    const BenchFlags& flags, const std::string& /*folder*/) {
  RunLength length;
  length.rounds = flags.rounds.value_or(length.rounds);
  length.steps = flags.steps.value_or(length.steps);
  TANDEM_RETURN_IF_ERROR(CheckFlags(flags, length));
  ConfigureProcess(/*intra_op_threads=*/1);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<c10::Device> devices,
                          DevicesToMeasure(flags.devices));
  const std::string shown =
      absl::StrCat(devices.size(), " (", devices[0].str(),
                   ", ...), one thread for operators each");
  std::vector<ProblemResult> results;
  for (const BenchProblem& problem : BenchProblems()) {
    if (!IsAsked(problem.name, flags)) continue;
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(),
                            Measure(problem, devices, length));
    // Shown as soon as a network is through.
    if (flags.cases.size() != 1) {
      ShowTables(DataParallelTables({results.back()}, shown));
    }
  }
  return SuiteReport{DataParallelTables(results, shown)};
}

}  // namespace tandem
