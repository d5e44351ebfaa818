// Flight dumps in the form of PyTorch's flight recorder, for its analyser
// (torchfrtrace) and other tools that read it.
//
// Pickle writer: a JSON value as Python's pickle has it.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_PYTORCH_FORM_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_PYTORCH_FORM_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tools/hang_diagnosis/history.h"

namespace tandem {

// The value as None, bool, int, float, str, list or dict, in protocol 2 (every
// Python 3 reads it). Texts are UTF-8 of less than 2^32 bytes. Nothing here
// reads pickles: who reads one runs it.
std::string Pickled(const nlohmann::ordered_json& value);

// What FlightRecorder::dump gives of that rank, format 2.10. Collectives keep
// their groups and numbers. The analyser asks all ranks of a group for the same
// numbers, so messages from one rank to another are a group of the two, counted
// in the order in which either end was started. Left out: actions, what a ring
// has lost on another rank, and what was started after the first rank had given
// up.
nlohmann::ordered_json PyTorchForm(const JobHistory& history, int rank);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_PYTORCH_FORM_H_
