// Schedule choice, as flags make it: by name, or as a file.
//
// Schedule file: one of a user's own, as text.

#ifndef TANDEM_PARALLEL_SCHEDULE_CHOICE_H_
#define TANDEM_PARALLEL_SCHEDULE_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// What ToString(schedule) writes: a line for each device, with its actions in
// order; F forward, B backward, I and W its two parts, U and R parameters that
// are gathered and freed (unshards.h); the microbatch behind the letter, which
// U and R lack, the stage before it, which may be left out where it is the
// device's number. Empty lines, and what follows a #, are skipped.
//
//   # 1F1B on two devices
//   F0 F1 B0 F2 B1 B2
//   F0 B0 F1 B1 F2 B2
//
// Commas may stand for spaces, so that what torch.distributed.pipelining writes
// of a schedule that computes alone (_dump_csv) can be read.
//
// InvalidArgument names line and word. The result is not validated.
absl::StatusOr<Schedule> ParseSchedule(const std::string& name,
                                       absl::string_view text);

// A path has a slash; a schedule's name has none.
bool IsScheduleFile(absl::string_view choice);

// Reads a file in ParseSchedule's form, whose path is relative to where the
// user stands. NotFound, or InvalidArgument: what is wrong, with the line, or
// that it is no file, or larger than any schedule.
absl::StatusOr<Schedule> ReadScheduleFile(const std::string& path);

// Stages a device that a schedule has unless it is told otherwise: 2 for those
// that are made for several (zb_v, interleaved_1f1b, looped_bfs), else 1.
int UsualChunks(absl::string_view name);

// The same, as far as so many stages allow: 1 where they do not divide.
int UsualChunks(absl::string_view name, int stages);

// A schedule's values, for ranks to compare (core/agreement/agreement.h). What
// decides about the run, all but the name: "stages", "microbatches", and for
// each device its stages and actions, "device 1": "stages 1 3; 1F0 3F0 ...".
NamedValues ScheduleValues(const Schedule& schedule);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_CHOICE_H_
