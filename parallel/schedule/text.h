// Schedule file: one of a user's own, as text.

#ifndef TANDEM_PARALLEL_SCHEDULE_TEXT_H_
#define TANDEM_PARALLEL_SCHEDULE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// What ToString(schedule) writes: a line for each device, with its actions in
// order; F forward, B backward, I and W its two parts; the microbatch behind
// the letter, the stage before it, which may be left out where it is the
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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_TEXT_H_
