// Option text: values of options as ranks compare them.

#ifndef TANDEM_PARALLEL_STEP_OPTION_TEXT_H_
#define TANDEM_PARALLEL_STEP_OPTION_TEXT_H_

#include <string>

#include "absl/strings/str_format.h"

namespace tandem {

inline std::string SwitchText(bool on) { return on ? "true" : "false"; }

// Every digit: what differs in the last one trains another model.
inline std::string NumberText(double value) {
  return absl::StrFormat("%.17g", value);
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_OPTION_TEXT_H_
