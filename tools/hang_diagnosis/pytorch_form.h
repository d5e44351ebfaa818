// Flight dumps in the form of PyTorch's flight recorder, for its analyser
// (torchfrtrace) and other tools that read it.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_PYTORCH_FORM_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_PYTORCH_FORM_H_

#include <nlohmann/json.hpp>

#include "tools/hang_diagnosis/history.h"

namespace tandem {

// What FlightRecorder::dump gives of that rank, format 2.10. Collectives keep
// their groups and numbers. The analyser asks all ranks of a group for the same
// numbers, so messages from one rank to another are a group of the two, counted
// in the order in which either end was started. Left out: actions, what a ring
// has lost on another rank, and what was started after the first rank had given
// up.
nlohmann::ordered_json PyTorchForm(const JobHistory& history, int rank);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_PYTORCH_FORM_H_
