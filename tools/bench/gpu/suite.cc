#include "tools/bench/gpu/suite.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/device.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kUsualRounds = 7;

int64_t GivenOr(int64_t given, int64_t usual) {
  return given > 0 ? given : usual;
}

Workload Resnet18(const GpuSizes& sizes) {
  Workload workload = *WorkloadNamed("resnet18");
  const int64_t side = GivenOr(sizes.image_size, 224);
  workload.gflop *= static_cast<double>(side * side) / (64 * 64);
  workload.input_shape = {3, side, side};
  workload.batch_size = GivenOr(sizes.batch_size, 256);
  workload.steps = 10;
  return workload;
}

Workload Gpt2(const GpuSizes& sizes) {
  Workload workload = *WorkloadNamed("gpt2");
  workload.input_shape = {GivenOr(sizes.tokens, 1024)};
  workload.batch_size = GivenOr(sizes.batch_size, 8);
  return workload;
}

Workload MlpSmall(const GpuSizes& sizes) {
  Workload workload = *WorkloadNamed("mlp_small");
  workload.batch_size = GivenOr(sizes.batch_size, workload.batch_size);
  return workload;
}

absl::Status CheckDevice(const std::string& device) {
  TANDEM_RETURN_IF_ERROR(CheckAmong("device", {device}, {"cuda", "cpu"}));
  TANDEM_ASSIGN_OR_RETURN(const c10::DeviceType type, ParseDeviceType(device));
  return Annotate(DevicesOf(DeviceRequest(), type).status(),
                  absl::StrCat("--device=", device));
}

}  // namespace

std::vector<Case> GpuCases(const GpuSizes& sizes) {
  std::vector<Case> cases;
  for (Workload& workload :
       std::vector<Workload>{Resnet18(sizes), Gpt2(sizes), MlpSmall(sizes)}) {
    Case made;
    made.name = workload.model;
    made.workload = std::move(workload);
    made.ours = WithRecipe({Setting()}, "static_graph");
    cases.push_back(std::move(made));
  }
  return cases;
}

std::vector<Peer> GpuPeers(const std::string& device,
                           const std::vector<std::string>& named) {
  if (!named.empty()) return RecipePeers(named, Program::kOneProcess, {});
  std::vector<std::string> may_fail = {"compile"};
  if (device == "cuda") {
    may_fail = {"compile", "reduce_overhead", "cuda_graphs"};
  }
  std::vector<std::string> all = {"eager"};
  all.insert(all.end(), may_fail.begin(), may_fail.end());
  return RecipePeers(all, Program::kOneProcess, may_fail);
}

absl::StatusOr<CaseResult> RunGpuCase(const Case& bench,
                                      const std::vector<Peer>& peers,
                                      const ComparisonOptions& options) {
  const KnownLosses losses(options.allow_tf32 ? "bf16" : bench.workload.dtype);
  return RunCase(bench, peers, losses, options);
}

std::vector<Table> GpuTables(const std::vector<CaseResult>& results,
                             const std::string& device) {
  CaseTables cases({{"ours", "samples/s", 0},
                    {"peer", "samples/s", 0},
                    {"ours_peak", "MiB", 0},
                    {"peer_peak", "MiB", 0},
                    {"device"}});
  for (const CaseResult& result : results) {
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      return {SamplesPerSecond(result, result.ours),
              SamplesPerSecond(result, peer), result.ours.peak_mib,
              peer.peak_mib, device};
    });
  }
  return cases.tables();
}

absl::StatusOr<SuiteReport> RunGpuSuite(const BenchFlags& flags,
                                        const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(CheckDevice(flags.device));
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", flags.peers,
                 {"eager", "compile", "reduce_overhead", "cuda_graphs"}));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Case> cases,
      CasesFromFlags(
          GpuCases({flags.batch_size, flags.image_size, flags.tokens}), flags));
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  options.device = flags.device;
  options.allow_tf32 = flags.allow_tf32;
  std::vector<CaseResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(
        results.emplace_back(),
        RunGpuCase(bench, GpuPeers(flags.device, flags.peers), options));
  }
  return SuiteReport{GpuTables(results, flags.device)};
}

}  // namespace tandem
