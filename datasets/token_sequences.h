// Token sequences: a text's tokens, cut into samples, from token files.

#ifndef TANDEM_DATASETS_TOKEN_SEQUENCES_H_
#define TANDEM_DATASETS_TOKEN_SEQUENCES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"
#include "datasets/split.h"

namespace tandem {

struct TokenSequencesOptions {
  std::string
      folder;  // of train.bin and val.bin (datasets/tokens/token_file.h)
  Split split = Split::kTrain;
  int64_t context = 128;  // tokens of a sample
  // How many tokens there are; 0: as many as the files' format has.
  int64_t vocabulary = 0;
};

// Sample i is the tokens from i * context on: no token is in two samples, and
// each is a target once, but for the first and what is left at the end.
//
// Inputs: int64 [n, context]. Targets: int64 [n, context], the inputs one token
// later. InvalidArgument for options that make no sense and for files of fewer
// tokens than one sample has, context + 1; else TokenFile's errors.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenSequences(
    const TokenSequencesOptions& options);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKEN_SEQUENCES_H_
