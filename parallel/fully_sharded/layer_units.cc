#include "parallel/fully_sharded/layer_units.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

// Layers [begin, end) that follow each other.
using Run = std::pair<size_t, size_t>;

struct Trained {
  std::string name;  // the first one
  int64_t numel = 0;
  std::set<size_t> layers;
};

// All layers' parameters, in the order of their first appearance.
std::vector<Trained> TrainedTensors(const LayerList& layers) {
  std::vector<Trained> all;
  std::map<const void*, size_t> places;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const auto& [name, tensor] : NamedParameters({layers[i]})) {
      if (!tensor.defined() || !tensor.requires_grad()) continue;
      const auto [place, is_new] =
          places.emplace(tensor.unsafeGetTensorImpl(), all.size());
      if (is_new) all.push_back({name, tensor.numel(), {}});
      all[place->second].layers.insert(i);
    }
  }
  return all;
}

std::vector<Run> RunsOfLayers(const std::vector<Trained>& tensors,
                              size_t layers, int64_t least) {
  std::vector<int64_t> numbers(layers);
  for (const Trained& each : tensors) {
    numbers[*each.layers.begin()] += each.numel;
  }
  std::vector<Run> runs;
  size_t begin = 0;
  int64_t sum = 0;
  for (size_t i = 0; i < layers; ++i) {
    sum += numbers[i];
    if (sum < std::max<int64_t>(least, 1) && i + 1 < layers) continue;
    runs.emplace_back(begin, i + 1);
    begin = i + 1;
    sum = 0;
  }
  return runs;
}

std::string RunText(const LayerList& layers, const Run& run) {
  const std::string& first = layers[run.first].name;
  if (run.second - run.first == 1) return absl::StrCat("layer ", first);
  return absl::StrCat("layers ", first, " to ", layers[run.second - 1].name);
}

size_t RunOf(const std::vector<Run>& runs, size_t layer) {
  const auto found =
      std::find_if(runs.begin(), runs.end(),
                   [&](const Run& run) { return layer < run.second; });
  return static_cast<size_t>(found - runs.begin());
}

}  // namespace

LayerUnits MakeLayerUnits(const LayerList& layers, int64_t least_parameters) {
  const std::vector<Trained> tensors = TrainedTensors(layers);
  const std::vector<Run> runs =
      RunsOfLayers(tensors, layers.size(), least_parameters);
  // By the runs that a tensor is in, which is one as a rule.
  std::map<std::vector<size_t>, std::vector<const Trained*>> together;
  for (const Trained& each : tensors) {
    std::set<size_t> in;
    for (const size_t layer : each.layers) in.insert(RunOf(runs, layer));
    together[{in.begin(), in.end()}].push_back(&each);
  }
  LayerUnits units;
  units.of_layer.resize(layers.size());
  for (const auto& [in, trained] : together) {
    const size_t unit = units.names.size();
    units.names.push_back(in.size() == 1 ? RunText(layers, runs[in.front()])
                                         : absl::StrCat("shared weights, ",
                                                        trained.front()->name));
    std::set<size_t> users;
    for (const Trained* each : trained) {
      units.unit_of[each->name] = unit;
      users.insert(each->layers.begin(), each->layers.end());
    }
    for (const size_t layer : users) units.of_layer[layer].push_back(unit);
  }
  return units;
}

}  // namespace tandem
