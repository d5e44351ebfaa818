// tandem on one GPU beside PyTorch eager, compiled and with CUDA graphs.
// docs/performance.md, or --help.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/device.h"
#include "tools/bench/comparison/flags.h"
#include "tools/bench/gpu/cases.h"
#include "tools/bench/gpu/report.h"
#include "tools/bench/gpu/run.h"
#include "tools/bench/process/program.h"

ABSL_FLAG(std::string, device, "cuda",
          "What both sides train on: cuda, or cpu, at sizes that suit it.");
ABSL_FLAG(std::vector<std::string>, cases, {},
          "Which cases: resnet18, gpt2, mlp_small. Empty: all.");
ABSL_FLAG(
    std::vector<std::string>, peers, {},
    "What tandem is compared with: eager; compile, torch.compile; "
    "reduce_overhead, the same with its CUDA graphs; cuda_graphs, a whole "
    "step in one. Empty: those that the device can, as far as they run. "
    "A peer that is named must run.");
ABSL_FLAG(int64_t, batch_size, 0, "Of every case. 0: as the cases say.");
ABSL_FLAG(int64_t, image_size, 0, "Of resnet18, on each side. 0: 224.");
ABSL_FLAG(int64_t, tokens, 0, "Of gpt2, up to 1024. 0: 1024.");
ABSL_FLAG(bool, allow_tf32, false,
          "Both sides may round what they multiply of fp32 to TF32.");
ABSL_FLAG(int, rounds, 7, "How often the sides take turns.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains the same models with tandem and with PyTorch on one GPU, from the\n"
    "same weights on the same batches, in turns, and compares the times of a\n"
    "step, and peak memory.\n\n"
    "  bench_gpu --cases=resnet18,mlp_small\n"
    "  bench_gpu --cases=gpt2 --dtypes=bf16 --json=figures.json\n"
    "  bench_gpu --device=cpu --cases=mlp_small        to try it without a "
    "GPU\n";

absl::Status CheckDevice(const std::string& device) {
  TANDEM_RETURN_IF_ERROR(CheckAmong("device", {device}, {"cuda", "cpu"}));
  TANDEM_ASSIGN_OR_RETURN(const c10::DeviceType type, ParseDeviceType(device));
  return Annotate(DevicesOf(DeviceRequest(), type).status(),
                  absl::StrCat("--device=", device));
}

absl::StatusOr<GpuPeers> PeersFromFlags(const std::string& device) {
  const std::vector<std::string> named = absl::GetFlag(FLAGS_peers);
  TANDEM_RETURN_IF_ERROR(CheckAmong(
      "peers", named, {"eager", "compile", "reduce_overhead", "cuda_graphs"}));
  if (named.empty()) return UsualGpuPeers(device);
  GpuPeers peers;
  peers.names = named;
  return peers;
}

absl::StatusOr<std::vector<Case>> CasesOfFlags() {
  GpuSizes sizes;
  sizes.batch_size = absl::GetFlag(FLAGS_batch_size);
  sizes.image_size = absl::GetFlag(FLAGS_image_size);
  sizes.tokens = absl::GetFlag(FLAGS_tokens);
  return CasesFromFlags(GpuCases(sizes), absl::GetFlag(FLAGS_cases));
}

absl::StatusOr<CaseResult> RunInOwnFolder(const Case& bench,
                                          const GpuPeers& peers,
                                          ComparisonOptions options) {
  TANDEM_ASSIGN_OR_RETURN(options.folder,
                          FolderFor(bench.name, options.folder));
  return RunGpuCase(bench, peers, options);
}

absl::Status Run(const std::string& folder) {
  const std::string device = absl::GetFlag(FLAGS_device);
  TANDEM_RETURN_IF_ERROR(CheckDevice(device));
  TANDEM_ASSIGN_OR_RETURN(const GpuPeers peers, PeersFromFlags(device));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases, CasesOfFlags());
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(absl::GetFlag(FLAGS_rounds)));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  options.device = device;
  options.allow_tf32 = absl::GetFlag(FLAGS_allow_tf32);
  options.folder = folder;
  std::vector<CaseResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(),
                            RunInOwnFolder(bench, peers, options));
  }
  absl::PrintF("\n%s", GpuTable(results));
  return WriteFigures(GpuJson(results, device));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_gpu", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
