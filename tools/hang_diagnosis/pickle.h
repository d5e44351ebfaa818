// Pickle writer: a JSON value as Python's pickle has it.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_PICKLE_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_PICKLE_H_

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

// The value as None, bool, int, float, str, list or dict, in protocol 2 (every
// Python 3 reads it). Texts are UTF-8 of less than 2^32 bytes. Nothing here
// reads pickles: who reads one runs it.
std::string Pickled(const nlohmann::ordered_json& value);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_PICKLE_H_
