#include "parallel/optim/update_options.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {

OptimizerGroup GroupOfAny(
    OptimizerGroup group,
    std::map<std::string, std::vector<std::string>> names) {
  if (!group || names.empty()) return group;
  return [group = std::move(group),
          names = std::move(names)](const std::string& name) {
    const auto found = names.find(name);
    if (found == names.end()) return group(name);
    int64_t greatest = 0;
    for (const std::string& each : found->second) {
      greatest = std::max(greatest, group(each));
    }
    return greatest;
  };
}

std::vector<OptimizerOptions> AllOptimizers(const UpdateOptions& options) {
  std::vector<OptimizerOptions> all = {options.optimizer};
  all.insert(all.end(), options.further_optimizers.begin(),
             options.further_optimizers.end());
  return all;
}

absl::Status CheckUpdateOptions(const UpdateOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_norm", options.clip_norm));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_value", options.clip_value));
  TANDEM_RETURN_IF_ERROR(
      CheckPositive("clip_norm_type", options.clip_norm_type));
  return options.grad_scaler ? CheckGradScalerOptions(*options.grad_scaler)
                             : absl::OkStatus();
}

}  // namespace tandem
