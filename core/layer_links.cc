#include "core/layer_links.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

absl::Status SkipError(const std::string& skip, size_t layer,
                       const char* problem) {
  return absl::InvalidArgumentError(absl::StrCat(
      "skip connection '", skip, "' of layer ", layer, " ", problem));
}

}  // namespace

absl::Status CheckSkips(const std::vector<LayerLinks>& layers) {
  const std::vector<std::string> inputs = FurtherInputs(layers);
  std::set<std::string> known;
  std::map<std::string, size_t> on_their_way;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& skip : layers[i].takes) {
      if (on_their_way.erase(skip) > 0) continue;
      return SkipError(skip, i,
                       known.count(skip) > 0 ? "is taken a second time"
                                             : "is left by no layer before it");
    }
    for (const std::string& skip : layers[i].stashes) {
      if (absl::c_linear_search(inputs, skip)) {
        return SkipError(skip, i, "has the name of a further input");
      }
      if (!known.insert(skip).second) {
        return SkipError(skip, i, "is left a second time");
      }
      on_their_way[skip] = i;
    }
  }
  if (on_their_way.empty()) return absl::OkStatus();
  const auto& [skip, layer] = *on_their_way.begin();
  return SkipError(skip, layer, "is taken by no layer after it");
}

std::vector<std::string> SkipsBefore(const std::vector<LayerLinks>& layers,
                                     size_t layer) {
  std::set<std::string> on_their_way;
  for (size_t i = 0; i < layer; ++i) {
    for (const std::string& skip : layers[i].takes) on_their_way.erase(skip);
    on_their_way.insert(layers[i].stashes.begin(), layers[i].stashes.end());
  }
  for (size_t i = layer; i < layers.size(); ++i) {
    on_their_way.insert(layers[i].reads.begin(), layers[i].reads.end());
  }
  return {on_their_way.begin(), on_their_way.end()};
}

std::vector<std::string> FurtherInputs(const std::vector<LayerLinks>& layers) {
  return SkipsBefore(layers, 0);
}

}  // namespace tandem
