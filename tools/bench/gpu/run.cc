#include "tools/bench/gpu/run.h"

#include "absl/algorithm/container.h"
#include "tools/bench/comparison/run.h"

namespace tandem {
namespace {

// With TF32 operands have as few bits as with bf16, or little more.
KnownLosses LossesOf(const Case& bench, const ComparisonOptions& options) {
  return KnownLosses(options.allow_tf32 ? "bf16" : bench.workload.dtype);
}

}  // namespace

GpuPeers UsualGpuPeers(const std::string& device) {
  if (device != "cuda") return {{"eager", "compile"}, {"compile"}};
  return {{"eager", "compile", "reduce_overhead", "cuda_graphs"},
          {"compile", "reduce_overhead", "cuda_graphs"}};
}

absl::StatusOr<CaseResult> RunGpuCase(const Case& bench, const GpuPeers& named,
                                      const ComparisonOptions& options) {
  std::vector<Peer> peers;
  for (const std::string& name : named.names) {
    // Peers are called as the recipes that they follow.
    peers.push_back({name, Program::kOneProcess, WithRecipe({Setting()}, name),
                     absl::c_linear_search(named.may_fail, name)});
  }
  return RunCase(bench, peers, LossesOf(bench, options), options);
}

}  // namespace tandem
