#include "tools/bench/gpt/cases.h"

#include <utility>

#include "tools/bench/hybrid/cases.h"

namespace tandem {
namespace {

constexpr char kCompile[] = "compile";

Workload Sized(Workload workload, const GptSizes& sizes) {
  if (sizes.batch_size > 0) workload.batch_size = sizes.batch_size;
  if (sizes.tokens > 0) return WithTokens(workload, sizes.tokens);
  return workload;
}

// As DistributedDataParallel alone takes them.
bool IsInOnePiece(const Layout& layout) {
  return layout.devices_of_replica() == 1;
}

// Weight gradients by themselves are computed behind the compiler's back.
bool CanBeCompiled(const Setting& setting) {
  return setting.schedule != "zero_bubble" &&
         (setting.recipe.empty() || setting.recipe == "ddp");
}

std::vector<Setting> CompiledStages(const std::vector<Setting>& settings) {
  std::vector<Setting> compiled;
  for (const Setting& each : settings) {
    if (CanBeCompiled(each)) compiled.push_back(each);
  }
  return WithRecipe(std::move(compiled), "compiled");
}

Peer OfPipeline(const Case& bench, const std::string& name) {
  if (name != kCompile) return {"pipelining", Program::kPyTorch, bench.peers};
  return {"pipelining, compiled", Program::kPyTorch,
          CompiledStages(bench.peers)};
}

Peer InOnePiece(const Case& bench, const std::string& name) {
  const bool alone = bench.layout.replicas == 1;
  return {name, alone ? Program::kOneProcess : Program::kPyTorch,
          WithRecipe({Setting()}, name)};
}

}  // namespace

std::vector<Case> GptCases(const GptSizes& sizes) {
  std::vector<Case> cases;
  for (const char* model : {"gpt_tiny", "gpt_baby", "gpt2"}) {
    for (Case& each : CasesInLayouts(Sized(*WorkloadNamed(model), sizes))) {
      if (IsInOnePiece(each.layout)) {
        each.ours = WithRecipe({Setting()}, "static_graph");
      }
      cases.push_back(std::move(each));
    }
  }
  return cases;
}

std::vector<Peer> GptPeers(const Case& bench,
                           const std::vector<std::string>& names, bool wanted) {
  std::vector<Peer> peers;
  for (const std::string& name : names) {
    peers.push_back(IsInOnePiece(bench.layout) ? InOnePiece(bench, name)
                                               : OfPipeline(bench, name));
    peers.back().may_fail = !wanted && name == kCompile;
  }
  return peers;
}

}  // namespace tandem
