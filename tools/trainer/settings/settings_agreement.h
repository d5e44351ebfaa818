// Settings agreement: which must be the same on all ranks of a job, every flag
// that is not on one list.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_SETTINGS_AGREEMENT_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_SETTINGS_AGREEMENT_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/agreement/agreement.h"

namespace tandem {

// A flag that may differ between ranks, and why.
struct FlagOfRank {
  const char* name;
  const char* reason;
};

// The list; docs/launching.md shows it.
absl::Span<const FlagOfRank> FlagsOfRanks();

// What CommunicatorOptions::settings takes: every flag of this program that is
// not on the list, with its value, as "--seed"; one without a default is left
// out where it is not given. Of a schedule's file it is what the file says,
// line by line, and not its path, which may differ between hosts. With
// --reproducible --intra_op_threads is compared as well: it shows in the bits.
// Call after the command line was parsed. An error where the schedule's file
// cannot be read.
absl::StatusOr<NamedValues> SettingsOfJob();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_SETTINGS_AGREEMENT_H_
