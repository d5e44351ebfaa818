#include "parallel/pipeline/layout.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"

namespace tandem {

absl::Status CheckLayout(const Schedule& schedule,
                         const PipelineLayout& layout) {
  CHECK(!layout.devices.empty());
  const int there = layout.ranks() * static_cast<int>(layout.devices.size());
  if (there == schedule.devices()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule ", schedule.name, " is for ", schedule.devices(),
                   " devices, but there are ", there, ": ", layout.ranks(),
                   " ranks of ", layout.devices.size()));
}

}  // namespace tandem
