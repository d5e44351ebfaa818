// Token sequences: a text's tokens, cut into samples, from token files.

#ifndef TANDEM_DATASETS_TOKEN_SEQUENCES_H_
#define TANDEM_DATASETS_TOKEN_SEQUENCES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"

namespace tandem {

struct TokenSequencesOptions {
  // The folder of train.bin and val.bin (datasets/tokens/token_file.h), or of
  // shards in the place of either (datasets/tokens/token_shards.h).
  std::string folder;
  Split split = Split::kTrain;
  int64_t context = 128;  // tokens of a sample
  // How many tokens there are; 0: as many as the files' format has.
  int64_t vocabulary = 0;
  // Tells documents apart that lie side by side in a sample.
  bool document_masks = false;
  // With it, of files that list no documents: the token that ends each. -1:
  // none is given.
  int64_t end_of_text = -1;
  // How many tokens there are where neither `vocabulary` nor the file says it;
  // 0: as many as its format usually has.
  int64_t unsaid_vocabulary = 0;
  // Bytes of each number, for files that do not say it (TokenFile::Open).
  int token_bytes = 0;
};

// Sample i is the tokens from i * context on: no token is in two samples, and
// each is a target once, but for the first and what is left at the end. Shards
// follow each other in the order of their names, and no sample crosses from one
// to the next, as in llm.c: what is left at the end of each is left out.
//
// Inputs: int64 [n, context]. Targets: int64 [n, context], the inputs one token
// later. With document_masks a batch also has the further input kDocumentBegins
// (core/model/batch.h), and a document's last token, its end of text where
// it has one, has kNoTarget: Megatron-LM's --reset-position-ids,
// --reset-attention-mask and --eod-mask-loss together.
//
// A val.bin without any token is a test set of size 0 (//tools:tokenize
// --validation_fraction=0).
//
// InvalidArgument for options that make no sense, for other files none of which
// has the tokens of a sample, context + 1, and for files whose documents cannot
// be told apart (datasets/tokens/documents.h); else OpenTokenShards's errors.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenSequences(
    const TokenSequencesOptions& options);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKEN_SEQUENCES_H_
