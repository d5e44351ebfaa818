// Task limit: how many threads and processes this process's group may have.

#ifndef TANDEM_CORE_DEVICE_TASK_LIMIT_H_
#define TANDEM_CORE_DEVICE_TASK_LIMIT_H_

#include <cstdint>
#include <limits>

#include "core/device/control_group.h"

namespace tandem {

constexpr uint64_t kNoTaskLimit = std::numeric_limits<uint64_t>::max();

// How many more the control group allows, and those that it lies in: the least
// of what pids.max leaves beside pids.current. kNoTaskLimit where none has a
// limit.
uint64_t TasksLeft(const ControlGroups& groups = {});

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_TASK_LIMIT_H_
