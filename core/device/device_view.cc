#include "core/device/device_view.h"

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::string Count(int64_t number, absl::string_view of) {
  return absl::StrCat(number, " ", of, number == 1 ? "" : "s");
}

absl::Status CheckNumbers(const DeviceView& view) {
  if (0 <= view.local_rank && view.local_rank < view.local_world_size &&
      view.devices_per_rank >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "local rank ", view.local_rank, " of ", view.local_world_size, " with ",
      view.devices_per_rank,
      " devices: a rank counts from 0 and has at least one device"));
}

absl::Status TooFew(const DeviceView& view, int64_t needed) {
  std::string needs = absl::StrCat("this host's ", view.local_world_size,
                                   " ranks need ", Count(needed, "device"),
                                   ", ", view.devices_per_rank, " each");
  if (view.local_world_size == 1) {
    needs = absl::StrCat("this rank needs ", Count(needed, "device"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      needs, ", and ", view.found == 0 ? "none" : absl::StrCat(view.found),
      view.found == 1 ? " was found" : " were found"));
}

// "2", or with a type: "h100:2". 0 where it is neither.
int GpusPerTask(const Environment& environment) {
  const std::string text = environment.Get("SLURM_GPUS_PER_TASK").value_or("");
  const size_t type = text.rfind(':');
  int gpus = 0;
  return absl::SimpleAtoi(
             type == std::string::npos ? text : text.substr(type + 1), &gpus)
             ? gpus
             : 0;
}

bool SlurmSplits(const Environment& environment, int found) {
  const auto on_node = environment.GetInt("SLURM_GPUS_ON_NODE");
  return GpusPerTask(environment) == found ||
         (on_node.ok() && on_node->value_or(0) > found);
}

}  // namespace

absl::StatusOr<std::vector<int>> ChooseDevices(const DeviceView& view) {
  const absl::Status checked = CheckNumbers(view);
  if (!checked.ok()) return checked;
  const int n = view.devices_per_rank;
  const int64_t needed = int64_t{view.local_world_size} * n;
  const bool each_has_some = view.found >= needed;
  if (!each_has_some && !(view.is_own && view.found >= n) &&
      !(view.shared && view.found > 0)) {
    return TooFew(view, needed);
  }
  const bool begins = view.is_own && !each_has_some;
  std::vector<int> devices(n);
  std::iota(devices.begin(), devices.end(), begins ? 0 : view.local_rank * n);
  for (int& device : devices) device %= view.found;
  return devices;
}

bool IsOwnView(const Environment& environment, absl::string_view launcher,
               int devices_per_rank, int found) {
  if (launcher == "tandem" || launcher == "torchrun") return false;
  if (launcher == "slurm") return SlurmSplits(environment, found);
  return environment.Get("CUDA_VISIBLE_DEVICES").has_value() &&
         found == devices_per_rank;
}

}  // namespace tandem
