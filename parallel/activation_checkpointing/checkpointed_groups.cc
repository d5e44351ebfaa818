#include "parallel/activation_checkpointing/checkpointed_groups.h"

#include <algorithm>
#include <cstddef>
#include <regex>

#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::vector<LayerRange>> CheckpointedGroups(
    const std::vector<std::string>& names,
    const SelectiveCheckpointing& selective) {
  std::vector<LayerRange> groups;
  if (selective.every < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint_every must be 0 or more, not ", selective.every));
  }
  if (!selective.is_on()) return groups;
  const int64_t most = std::max<int64_t>(selective.every, 1);
  try {
    const std::regex pattern(selective.layers);
    for (size_t i = 0; i < names.size(); ++i) {
      if (!std::regex_search(names[i], pattern)) continue;
      const auto layer = static_cast<int64_t>(i);
      const bool goes_on = !groups.empty() && groups.back().end == layer &&
                           layer - groups.back().begin < most;
      if (!goes_on) groups.push_back({layer, layer});
      ++groups.back().end;
    }
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint_layers=", selective.layers,
                     ": not a regular expression: ", error.what()));
  }
  return groups;
}

absl::Status CheckSomeLayerIsMeant(const std::vector<std::string>& names,
                                   const SelectiveCheckpointing& selective) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<LayerRange> groups,
                          CheckpointedGroups(names, selective));
  if (!groups.empty() || !selective.is_on()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "checkpoint_layers=", selective.layers,
      " matches no layer of the model, whose layers are ", ShortList(names)));
}

}  // namespace tandem
