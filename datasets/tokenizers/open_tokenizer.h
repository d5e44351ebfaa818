// Tokenizers by name, file or folder.

#ifndef TANDEM_DATASETS_TOKENIZERS_OPEN_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_OPEN_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// "bytes", whose token 0 to 255 is the byte of that number and 256 the end of a
// text; or a path, as the process sees it: of a file whose name ends with .json
// (tokenizer_json.h), of a sentencepiece model (sentence_piece_tokenizer.h), of
// another one (byte_pair_files.h), or of a folder with tokenizer.json, else
// with vocab.json and merges.txt (byte_pair_files.h), else with
// tokenizer.model, which is one of the latter two. Of a folder with a
// tokenizer.json that is not taken and a sentencepiece model, of which it is a
// copy, that model. A folder may also name one (tokenizer_files.h). What is
// said beside its files of the end of a text counts (end_of_text.h).
// InvalidArgument, with what there is, for anything else.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(
    const std::string& name_or_path);

// Whether a folder has a file that OpenTokenizer looks for there.
bool HasTokenizer(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_OPEN_TOKENIZER_H_
