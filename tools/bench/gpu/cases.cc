#include "tools/bench/gpu/cases.h"

#include <utility>

namespace tandem {
namespace {

int64_t OneOf(int64_t given, int64_t usual) {
  return given > 0 ? given : usual;
}

Workload Resnet18(const GpuSizes& sizes) {
  Workload workload = *WorkloadNamed("resnet18");
  const int64_t side = OneOf(sizes.image_size, 224);
  workload.gflop *= static_cast<double>(side * side) / (64 * 64);
  workload.input_shape = {3, side, side};
  workload.batch_size = OneOf(sizes.batch_size, 256);
  workload.steps = 10;
  return workload;
}

Workload Gpt2(const GpuSizes& sizes) {
  Workload workload = *WorkloadNamed("gpt2");
  workload.input_shape = {OneOf(sizes.tokens, 1024)};
  workload.batch_size = OneOf(sizes.batch_size, 8);
  return workload;
}

Workload MlpSmall(const GpuSizes& sizes) {
  Workload workload = *WorkloadNamed("mlp_small");
  workload.batch_size = OneOf(sizes.batch_size, workload.batch_size);
  return workload;
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

}  // namespace tandem
