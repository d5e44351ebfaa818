// What any tokenizer must do that was made of a file.

#ifndef TANDEM_TESTS_FUZZ_TOKENIZER_CHECK_H_
#define TANDEM_TESTS_FUZZ_TOKENIZER_CHECK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// Aborts where a text's tokens are not below the vocabulary's size. An error
// instead of a tokenizer is as good.
void CheckTokenizer(const absl::StatusOr<std::unique_ptr<Tokenizer>>& made);

}  // namespace tandem

#endif  // TANDEM_TESTS_FUZZ_TOKENIZER_CHECK_H_
