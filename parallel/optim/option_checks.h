// Checks of optimizer options, with one wording for all.

#ifndef TANDEM_PARALLEL_OPTIM_OPTION_CHECKS_H_
#define TANDEM_PARALLEL_OPTIM_OPTION_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// InvalidArgument, naming the option and its value, unless 0 <= value < inf.
absl::Status CheckNotNegative(absl::string_view option, double value);

// InvalidArgument unless value > 0; infinity is.
absl::Status CheckPositive(absl::string_view option, double value);

// InvalidArgument unless 0 <= value < 1.
absl::Status CheckBelowOne(absl::string_view option, double value);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTION_CHECKS_H_
