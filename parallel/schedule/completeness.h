// Schedule completeness: whether it has each action once, on the device of its
// stage. For validator.h.

#ifndef TANDEM_PARALLEL_SCHEDULE_COMPLETENESS_H_
#define TANDEM_PARALLEL_SCHEDULE_COMPLETENESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// "F3 of stage 1".
std::string DescribeAction(const Action& action);
// InvalidArgument, with the schedule's name.
absl::Status WrongSchedule(const Schedule& schedule, absl::string_view what);

// InvalidArgument names what is missing, or done twice, or elsewhere. Takes no
// more memory than a schedule that is complete but for a few actions.
absl::Status CheckCompleteness(const Schedule& schedule);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_COMPLETENESS_H_
