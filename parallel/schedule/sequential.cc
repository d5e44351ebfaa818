#include "parallel/schedule/sequential.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem {

absl::StatusOr<Schedule> SequentialSchedule(int devices, int microbatches) {
  if (devices < 1 || microbatches < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a schedule needs at least one device and one microbatch, but ",
        devices, " and ", microbatches, " were given"));
  }
  Schedule schedule;
  schedule.name = std::string(kSequential);
  schedule.stages = devices;
  schedule.microbatches = microbatches;
  schedule.actions.resize(static_cast<size_t>(devices));
  for (int device = 0; device < devices; ++device) {
    schedule.stages_of.push_back({device});
    auto& actions = schedule.actions[static_cast<size_t>(device)];
    for (int i = 0; i < microbatches; ++i) {
      actions.push_back({ActionKind::kForward, device, i});
      actions.push_back({ActionKind::kBackward, device, i});
    }
  }
  return schedule;
}

}  // namespace tandem
