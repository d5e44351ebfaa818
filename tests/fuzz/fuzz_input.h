// Fuzzing input: the bytes that libFuzzer gives, as what a target reads.

#ifndef TANDEM_TESTS_FUZZ_FUZZ_INPUT_H_
#define TANDEM_TESTS_FUZZ_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// What a target defines: libFuzzer calls it, and corpus_main. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tandem {

absl::string_view InputText(const uint8_t* data, size_t size);

// Stands between the parts of an input that are several files.
constexpr char kPartSeparator[] = "\n%%\n";

// The parts, as many as are asked for; the last ones empty where the input has
// fewer.
std::vector<std::string> InputParts(absl::string_view input, size_t parts);

// A folder of this process's own, for the files of one input after the other.
const std::string& InputFolder();

// Writes a file of that name into it; its path.
std::string InputFile(const std::string& name, absl::string_view bytes);

}  // namespace tandem

#endif  // TANDEM_TESTS_FUZZ_FUZZ_INPUT_H_
