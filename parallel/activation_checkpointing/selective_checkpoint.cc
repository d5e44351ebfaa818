#include "parallel/activation_checkpointing/selective_checkpoint.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "parallel/activation_checkpointing/checkpoint.h"

namespace tandem {
namespace {

std::string GroupName(absl::Span<const Layer> layers) {
  if (layers.size() == 1) return absl::StrCat("layer ", layers.front().name);
  return absl::StrCat("layers ", layers.front().name, " to ",
                      layers.back().name);
}

// By the names of skips and further inputs that the layers have to do with.
std::set<std::string> UsedBy(absl::Span<const Layer> layers) {
  std::set<std::string> used;
  for (const Layer& each : layers) {
    used.insert(each.links.pop.begin(), each.links.pop.end());
    used.insert(each.links.reads.begin(), each.links.reads.end());
  }
  return used;
}

// What the others leave behind, or pass on, is no group's input.
Skips TakeUnused(const std::set<std::string>& used, Skips& skips) {
  Skips passing;
  for (auto each = skips.begin(); each != skips.end();) {
    const auto next = std::next(each);
    if (used.count(each->first) == 0) passing.insert(skips.extract(each));
    each = next;
  }
  return passing;
}

std::vector<at::Tensor> LayerBuffers(absl::Span<const Layer> layers) {
  std::vector<at::Tensor> buffers;
  for (const auto& each :
       NamedBuffers(LayerList(layers.begin(), layers.end()))) {
    buffers.push_back(each.second);
  }
  return buffers;
}

// What the group as one layer shares with others; `outgoing` are on their way
// behind it.
LayerLinks Joined(const LayerList& group,
                  const std::vector<std::string>& outgoing) {
  LayerLinks joined;
  std::set<std::string> left;
  const auto add = [](const std::string& name, std::vector<std::string>& all) {
    if (!absl::c_linear_search(all, name)) all.push_back(name);
  };
  for (const Layer& each : group) {
    for (const std::string& name : each.links.pop) {
      if (left.count(name) == 0) add(name, joined.pop);
    }
    for (const std::string& name : each.links.reads) add(name, joined.reads);
    left.insert(each.links.stash.begin(), each.links.stash.end());
  }
  for (const std::string& name : outgoing) {
    if (left.count(name) > 0) add(name, joined.stash);
  }
  return joined;
}

// The whole group, in the place of its last layer.
Layer Grouped(const LayerList& group, const std::vector<std::string>& outgoing,
              const CheckpointOptions& options) {
  Layer last = group.back();
  last.links = Joined(group, outgoing);
  const auto run =
      [group, drops = LastPops(LinksByLayer(group), outgoing)](LayerFlow flow) {
        for (size_t i = 0; i < group.size(); ++i) {
          flow.values = RunLayer(group[i], flow.values, flow.skips);
          for (const std::string& each : drops[i]) flow.skips.erase(each);
        }
        return flow;
      };
  last.forward_with_skips = [group, run, options](const at::Tensor& input,
                                                  Skips& skips) {
    LayerFlow flow =
        CheckpointLayers(options, group, run, {input, std::move(skips)});
    skips = std::move(flow.skips);
    return flow.values;
  };
  last.forward = [both = last.forward_with_skips](const at::Tensor& input) {
    Skips none;
    return both(input, none);
  };
  return last;
}

}  // namespace

LayerFlow CheckpointLayers(CheckpointOptions options,
                           absl::Span<const Layer> layers,
                           std::function<LayerFlow(LayerFlow)> run,
                           LayerFlow flow) {
  options.name = GroupName(layers);
  options.recompute_context = KeepingBuffers(
      LayerBuffers(layers), std::move(options.recompute_context));
  Skips passing = TakeUnused(UsedBy(layers), flow.skips);
  auto [values, skips] = Checkpoint(
      options,
      [run = std::move(run)](const at::Tensor& input, const Skips& taken) {
        LayerFlow result = run({input, taken});
        return std::make_pair(std::move(result.values),
                              std::move(result.skips));
      },
      std::move(flow.values), std::move(flow.skips));
  passing.merge(skips);
  return {std::move(values), std::move(passing)};
}

absl::StatusOr<LayerList> SelectiveCheckpoint(
    LayerList layers, const SelectiveCheckpointing& selective,
    const CheckpointOptions& options,
    const std::vector<std::string>& loss_takes) {
  std::vector<std::string> names;
  for (const Layer& each : layers) names.push_back(each.name);
  TANDEM_RETURN_IF_ERROR(CheckSomeLayerIsMeant(names, selective));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<LayerRange> groups,
                          CheckpointedGroups(names, selective));
  const std::vector<LayerLinks> links = LinksByLayer(layers);
  for (const LayerRange& each : groups) {
    const LayerList group(layers.begin() + each.begin,
                          layers.begin() + each.end);
    for (int64_t i = each.begin; i + 1 < each.end; ++i) {
      Layer& layer = layers[static_cast<size_t>(i)];
      layer.links = {};
      layer.forward = [](const at::Tensor& input) { return input; };
      layer.forward_with_skips = nullptr;
    }
    const auto end = static_cast<size_t>(each.end);
    layers[end - 1] =
        Grouped(group, SkipsBefore(links, end, loss_takes), options);
  }
  return layers;
}

}  // namespace tandem
