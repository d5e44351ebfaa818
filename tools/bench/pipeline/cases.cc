#include "tools/bench/pipeline/cases.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// A schedule of tandem's and what it is compared with.
struct Pairing {
  const char* ours;
  int our_chunks;
  const char* peers;
  std::vector<int> peer_chunks;
};

const std::vector<Pairing>& Pairings() {
  static const auto* const pairings = new std::vector<Pairing>{
      {"gpipe", 1, "gpipe", {1}},
      {"1f1b", 1, "1f1b", {1}},
      {"interleaved_1f1b", 2, "interleaved_1f1b", {2}},
      {"looped_bfs", 2, "looped_bfs", {2}},
      {"zb_h1", 1, "zero_bubble", {1, 2}},
      {"zb_v", 2, "zero_bubble", {1, 2}},
  };
  return *pairings;
}

std::vector<int> Counts() { return {2, 4, 8, 16}; }

}  // namespace

std::vector<Case> PipelineCases(int devices) {
  std::vector<Case> cases;
  // Losses are compared for every setting, so that few steps do.
  for (const Workload& workload :
       {*WorkloadNamed("mlp_deep"),
        WithSgd(*WorkloadNamed("gpt_tiny"), 0.001, 3),
        WithSgd(*WorkloadNamed("resnet18"), 0.001, 1)}) {
    for (const Pairing& pairing : Pairings()) {
      Case made;
      made.name = absl::StrCat(workload.model, "/", pairing.ours);
      made.workload = workload;
      made.layout.devices = devices;
      made.ours = WithWeightsTogether(SettingsOf(
          pairing.ours, {pairing.our_chunks}, Counts(), workload.batch_size));
      made.peers = SettingsOf(pairing.peers, pairing.peer_chunks, Counts(),
                              workload.batch_size);
      cases.push_back(std::move(made));
    }
  }
  return cases;
}

std::vector<std::string> UnreliablePeerSchedules() {
  return {"zbv", "dual_pipe_v"};
}

std::vector<Setting> UnreliableSettings(const std::string& schedule,
                                        const Workload& workload) {
  // DualPipeV takes two microbatches a stage at the least.
  return SettingsOf(schedule, {2}, {4, 8, 16}, workload.batch_size);
}

}  // namespace tandem
