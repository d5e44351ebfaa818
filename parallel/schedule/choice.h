// Schedule choice, as flags make it: by name, or as a file.

#ifndef TANDEM_PARALLEL_SCHEDULE_CHOICE_H_
#define TANDEM_PARALLEL_SCHEDULE_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// A path has a slash; a schedule's name has none.
bool IsScheduleFile(absl::string_view choice);

// Reads a file in schedule_text.h's form, whose path is relative to where the
// user stands. NotFound, or InvalidArgument: what is wrong, with the line, or
// that it is no file, or larger than any schedule.
absl::StatusOr<Schedule> ReadScheduleFile(const std::string& path);

// Stages a device that a schedule has unless it is told otherwise: 2 for those
// that are made for several (zb_v, interleaved_1f1b, looped_bfs), else 1.
int UsualChunks(absl::string_view name);

// The same, as far as so many stages allow: 1 where they do not divide.
int UsualChunks(absl::string_view name, int stages);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_CHOICE_H_
