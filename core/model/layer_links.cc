#include "core/model/layer_links.h"

#include <cstddef>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::Status SkipError(const std::string& skip, size_t layer,
                       absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(
      "skip connection '", skip, "' of layer ", layer, " ", problem));
}

// What a layer has left, by name: the last of each.
struct Left {
  size_t layer;
  bool is_taken;
};
using AllLeft = std::map<std::string, Left>;

absl::Status TakeForLoss(const std::string& skip, AllLeft& left) {
  const auto found = left.find(skip);
  if (found != left.end()) {
    found->second.is_taken = true;
    return absl::OkStatus();
  }
  std::vector<std::string> all;
  for (const auto& each : left) {
    all.push_back(absl::StrCat("'", each.first, "'"));
  }
  const std::string names = ShortList(all);
  return absl::InvalidArgumentError(
      absl::StrCat("the loss takes '", skip, "', which no layer leaves; they ",
                   "leave ", names.empty() ? "nothing" : names));
}

}  // namespace

absl::Status CheckSkips(const std::vector<LayerLinks>& layers,
                        const std::vector<std::string>& loss_takes) {
  const std::vector<std::string> inputs = FurtherInputs(layers);
  AllLeft left;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const std::string& skip : layers[i].pop) {
      const auto found = left.find(skip);
      if (found == left.end()) {
        return SkipError(skip, i, "is left by no layer before it");
      }
      found->second.is_taken = true;
    }
    for (const std::string& skip : layers[i].stash) {
      if (absl::c_linear_search(inputs, skip)) {
        return SkipError(skip, i, "has the name of a further input");
      }
      const auto [entry, is_new] = left.try_emplace(skip, Left{i, false});
      if (!is_new && !entry->second.is_taken) {
        return SkipError(skip, entry->second.layer,
                         absl::StrCat("is taken by no layer before layer ", i,
                                      " leaves another of that name"));
      }
      entry->second = {i, false};
    }
  }
  for (const std::string& skip : loss_takes) {
    TANDEM_RETURN_IF_ERROR(TakeForLoss(skip, left));
  }
  for (const auto& [skip, entry] : left) {
    if (entry.is_taken) continue;
    return SkipError(skip, entry.layer,
                     "is taken by no layer after it, nor by the loss");
  }
  return absl::OkStatus();
}

std::vector<std::string> SkipsBefore(
    const std::vector<LayerLinks>& layers, size_t layer,
    const std::vector<std::string>& loss_takes) {
  std::set<std::string> needed;
  std::set<std::string> left;  // anew, under a name that may be on its way
  for (size_t i = layer; i < layers.size(); ++i) {
    needed.insert(layers[i].reads.begin(), layers[i].reads.end());
    for (const std::string& skip : layers[i].pop) {
      if (left.count(skip) == 0) needed.insert(skip);
    }
    left.insert(layers[i].stash.begin(), layers[i].stash.end());
  }
  for (const std::string& skip : loss_takes) {
    if (left.count(skip) == 0) needed.insert(skip);
  }
  return {needed.begin(), needed.end()};
}

std::vector<std::string> FurtherInputs(const std::vector<LayerLinks>& layers) {
  std::set<std::string> names;
  for (const LayerLinks& each : layers) {
    names.insert(each.reads.begin(), each.reads.end());
  }
  return {names.begin(), names.end()};
}

std::vector<std::vector<std::string>> LastPops(
    const std::vector<LayerLinks>& layers,
    const std::vector<std::string>& outgoing) {
  std::vector<std::vector<std::string>> last(layers.size());
  std::set<std::string> needed(outgoing.begin(), outgoing.end());
  for (size_t i = layers.size(); i-- > 0;) {
    // What was left under such a name before is another.
    for (const std::string& skip : layers[i].stash) needed.erase(skip);
    for (const std::string& skip : layers[i].pop) {
      if (needed.insert(skip).second) last[i].push_back(skip);
    }
  }
  return last;
}

}  // namespace tandem
