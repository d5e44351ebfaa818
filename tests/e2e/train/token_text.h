// Token files of a made-up text, for jobs of --dataset=tokens. For tests.

#ifndef TANDEM_TESTS_E2E_TRAIN_TOKEN_TEXT_H_
#define TANDEM_TESTS_E2E_TRAIN_TOKEN_TEXT_H_

#include <cstdint>
#include <string>

namespace tandem {

// A text of few words, each with a space behind it: a byte a token, and two
// bytes each in the file, as nanoGPT's are.
void WriteText(const std::string& path, int words, uint32_t seed);

// A new folder, under the test's temporary one, with train.bin (2000 words) and
// val.bin (200).
std::string NewText(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TRAIN_TOKEN_TEXT_H_
