// Checks of one flag's value; the error names the flag, what was given and what
// it takes.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_FLAG_CHECKS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_FLAG_CHECKS_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

absl::Status AtLeast(const char* flag, double given, double least);
absl::Status Between(const char* flag, double given, double least, double most);
absl::Status OneOf(const char* flag, const std::string& given,
                   const std::vector<std::string>& known);

// The first that is not OK.
absl::Status FirstError(std::initializer_list<absl::Status> checks);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_FLAG_CHECKS_H_
