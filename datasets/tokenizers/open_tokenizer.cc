#include "datasets/tokenizers/open_tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/bytes_tokenizer.h"
#include "datasets/tokenizers/gpt2_files.h"
#include "datasets/tokenizers/read_file.h"
#include "datasets/tokenizers/tiktoken_ranks.h"
#include "datasets/tokenizers/tokenizer_json.h"

namespace tandem {
namespace {

using TokenizerOrError = absl::StatusOr<std::unique_ptr<Tokenizer>>;

TokenizerOrError OpenFile(const std::string& path) {
  return absl::EndsWith(path, ".json") ? ReadTokenizerJson(path)
                                       : ReadTiktokenRanks(path);
}

TokenizerOrError OpenFolder(const std::string& folder) {
  const std::string whole = absl::StrCat(folder, "/tokenizer.json");
  if (IsRegularFile(whole)) return ReadTokenizerJson(whole);
  const std::string vocabulary = absl::StrCat(folder, "/vocab.json");
  if (IsRegularFile(vocabulary)) {
    return ReadGpt2Files(vocabulary, absl::StrCat(folder, "/merges.txt"));
  }
  const std::string named = absl::StrCat(folder, "/tokenizer.txt");
  if (IsRegularFile(named)) {
    TANDEM_ASSIGN_OR_RETURN(const std::string name, ReadFile(named));
    if (absl::StripAsciiWhitespace(name) == "bytes") {
      return MakeBytesTokenizer();
    }
  }
  const std::string ranks = absl::StrCat(folder, "/tokenizer.model");
  if (IsRegularFile(ranks)) return ReadTiktokenRanks(ranks);
  return absl::InvalidArgumentError(absl::StrCat(
      "no tokenizer at '", folder,
      "': expected bytes, a tokenizer.json, a rank file of tiktoken's, or a "
      "folder with tokenizer.json, with vocab.json and merges.txt, or with "
      "tokenizer.model"));
}

}  // namespace

TokenizerOrError OpenTokenizer(const std::string& name_or_path) {
  if (name_or_path == "bytes") return MakeBytesTokenizer();
  return IsRegularFile(name_or_path) ? OpenFile(name_or_path)
                                     : OpenFolder(name_or_path);
}

}  // namespace tandem
