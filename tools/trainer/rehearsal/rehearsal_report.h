// Report of a rehearsal without values: what a person reads.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_REPORT_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "core/launch/launch.h"
#include "tools/trainer/rehearsal/rehearsal.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// A table with a row for each device: its peak, by category, its work of a step
// and what it exchanges with others; then the step's time, as far as speeds
// were given, and which device is fullest. Lines, each with its end. Requires a
// device.
std::string DescribeRehearsal(const RehearsedJob& job,
                              const TrainOptions& options);

// ResourceExhausted, naming the fullest device, where that holds more than
// --device_memory. Requires a device.
absl::Status CheckFits(const RehearsedJob& job, const TrainOptions& options);

// Rehearses, prints what there is to say, and checks that it fits: rank 0 for
// all. Collective.
absl::Status Rehearse(const RehearsalSettings& settings,
                      const TrainOptions& options, const Launch& launch);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_REPORT_H_
