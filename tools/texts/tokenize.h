// Texts to token files: what //tools:tokenize does.

#ifndef TANDEM_TOOLS_TEXTS_TOKENIZE_H_
#define TANDEM_TOOLS_TEXTS_TOKENIZE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

struct TokenizeOptions {
  std::string tokenizer;        // datasets/tokenizers/open_tokenizer.h
  std::string input;            // text_files.h
  std::string output;           // a folder; made where it is not there
  std::string column = "text";  // of JSON lines, of which another needs some
  double validation_fraction = 0.1;
  bool end_of_text = true;
  bool special_tokens = false;  // recognized in texts
  bool overwrite = false;       // token files that are there
};

struct TokenizeResult {
  int64_t vocabulary = 0;
  int64_t train_tokens = 0;
  int64_t train_documents = 0;
  int64_t validation_tokens = 0;
  int64_t validation_documents = 0;
  // What of a folder was not read (DescribeLeftOut); empty: all was.
  std::string left_out;
};

// How far it is.
struct TokenizeProgress {
  int64_t bytes = 0;
  int64_t all_bytes = 0;
  int64_t tokens = 0;
};

// Writes train.bin and val.bin, and the tokenizer beside them, as
// docs/large_models.md says; a document is held out whole, but for a text that
// is the only one. After an error nothing in the folder has changed.
// InvalidArgument for options that make no sense, for a tokenizer without an
// end of text where that is wanted, and where a side would have no tokens;
// FailedPrecondition where the folder has another tokenizer, or token files
// that are not to be overwritten; else the errors of tokenizers and files.
absl::StatusOr<TokenizeResult> Tokenize(
    const TokenizeOptions& options,
    const std::function<void(const TokenizeProgress&)>& progress);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_TOKENIZE_H_
