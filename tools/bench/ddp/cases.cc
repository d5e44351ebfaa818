#include "tools/bench/ddp/cases.h"

namespace tandem {

std::vector<Case> DdpCases(int ranks) {
  std::vector<Case> cases;
  for (const char* model : {"mlp_small", "mlp_wide", "resnet18", "gpt_tiny"}) {
    Case made;
    made.name = model;
    made.workload = *WorkloadNamed(model);
    made.workload.batch_size *= ranks;
    made.layout.replicas = ranks;
    made.ours = WithRecipe({Setting()}, "ddp");
    made.ours.push_back(WithRecipe({Setting()}, "static_graph").front());
    cases.push_back(made);
  }
  return cases;
}

}  // namespace tandem
