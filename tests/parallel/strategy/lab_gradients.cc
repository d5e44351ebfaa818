#include "tests/parallel/strategy/lab_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/model/layer.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

constexpr double kRate = 0x1p20;

// Different from element to element, and up to 0.1.
at::Tensor Shifts(const at::Tensor& values, int64_t parameter) {
  const at::Tensor numbers = at::arange(values.numel()) + 13 * parameter;
  return ((numbers * 37 % 101 - 50) / 500.0).view(values.sizes());
}

NamedTensors FirstValues(const LayerSpecs& specs) {
  const LayerList layers = MakeLayers(specs, /*seed=*/1);
  NamedTensors values;
  std::set<const void*> shifted;  // a tied one has several names
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    const at::Tensor tensor = parameter.detach();
    if (shifted.insert(tensor.data_ptr()).second) {
      tensor.add_(Shifts(tensor, static_cast<int64_t>(values.size())));
    }
    values.emplace_back(name, tensor);
  }
  return values;
}

}  // namespace

absl::StatusOr<LabGradients> GradientsInLab(const LabLayout& layout,
                                            LabJob job) {
  const NamedTensors before = FirstValues(job.specs());
  job.steps = 1;
  job.rate = kRate;
  job.begin = [&](const LabRank& rank) {
    return rank.strategy->LoadModelState(before);
  };
  TANDEM_ASSIGN_OR_RETURN(const LabOutcome after, TrainInLab(layout, job));
  LabGradients found = {after.scores.at(0), {}};
  for (const auto& [name, value] : before) {
    found.gradients[name] =
        (value.to(at::kDouble) - after.model.at(name).to(at::kDouble)) / kRate;
  }
  return found;
}

std::map<std::string, double> GradientDistances(const TensorsByName& found,
                                                const TensorsByName& expected) {
  std::map<std::string, double> distances;
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, right] : expected) {
    const double norm = right.norm().item<double>();
    const bool fits =
        found.count(name) == 1 && found.at(name).sizes() == right.sizes();
    EXPECT_TRUE(fits) << name;
    EXPECT_GT(norm, 0) << name;
    if (!fits) continue;
    distances[name] = (found.at(name) - right).norm().item<double>() / norm;
  }
  EXPECT_FALSE(distances.empty());
  return distances;
}

}  // namespace tandem
