#include "datasets/tokenizers/byte_pair/pre_tokenizer.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/byte_pair/json_fields.h"
#include "datasets/tokenizers/byte_pair/oniguruma.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

absl::Status Unknown(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("its pre_tokenizer ", what,
                   ", which is not known here: expected ByteLevel, maybe in a "
                   "Sequence after "
                   "Split and Digits"));
}

// An expression of the text itself.
std::string Literally(absl::string_view text) {
  std::string pattern;
  for (const char each : text) {
    if (absl::ascii_ispunct(each) || absl::ascii_isspace(each)) pattern += '\\';
    pattern += each;
  }
  return pattern;
}

absl::StatusOr<Splitter> ReadSplit(const Json& split) {
  const std::string behavior = TextIn(split, "behavior");
  const bool invert = FlagIn(split, "invert", false);
  const bool all = behavior == "Isolated" && !invert;
  if (!all && !(behavior == "Removed" && invert)) {
    return Unknown(absl::StrCat("splits with behavior '", behavior, "', ",
                                invert ? "inverted" : "not inverted"));
  }
  const Json& pattern = FieldOf(split, "pattern");
  std::string expression = TextIn(pattern, "Regex");
  TANDEM_RETURN_IF_ERROR(CheckReadAlike(expression));
  if (expression.empty()) expression = Literally(TextIn(pattern, "String"));
  if (expression.empty()) return Unknown("splits by no Regex and no String");
  TANDEM_ASSIGN_OR_RETURN(
      Splitter splitter,
      Splitter::Create(expression,
                       all ? SplitKeeps::kAll : SplitKeeps::kMatches));
  if (!splitter.may_match_nothing()) return splitter;
  return Unknown(absl::StrCat("splits by ", expression,
                              ", which can match no character at all"));
}

absl::Status AddByteLevel(const Json& json, PreTokenizer* made) {
  made->space_first = FlagIn(json, "add_prefix_space", true);
  if (made->space_first && !made->splitters.empty()) {
    return Unknown("adds a space after it has split");
  }
  if (!FlagIn(json, "use_regex", true)) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(Splitter splitter,
                          Splitter::Create(kGpt2Pattern, SplitKeeps::kAll));
  made->splitters.push_back(std::move(splitter));
  return absl::OkStatus();
}

absl::Status AddSplitter(const Json& json, PreTokenizer* made) {
  const std::string type = TextIn(json, "type");
  absl::StatusOr<Splitter> splitter = Unknown(absl::StrCat("is ", type));
  if (type == "Split") {
    splitter = ReadSplit(json);
  } else if (type == "Digits") {
    splitter = Splitter::Create(
        FlagIn(json, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
        SplitKeeps::kAll);
  }
  TANDEM_RETURN_IF_ERROR(splitter.status());
  made->splitters.push_back(*std::move(splitter));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreTokenizer> ReadPreTokenizer(const Json& json) {
  const bool sequence = TextIn(json, "type") == "Sequence";
  const Json& parts = sequence ? FieldOf(json, "pretokenizers") : json;
  const size_t count = sequence ? parts.size() : 1;
  PreTokenizer made;
  for (size_t i = 0; i < count; ++i) {
    const Json& part = sequence && parts.is_array() ? parts[i] : parts;
    const bool last = i + 1 == count;
    if (last != (TextIn(part, "type") == "ByteLevel")) {
      return Unknown("does not end with its only ByteLevel");
    }
    TANDEM_RETURN_IF_ERROR(last ? AddByteLevel(part, &made)
                                : AddSplitter(part, &made));
  }
  if (count == 0) return Unknown("is empty");
  return made;
}

}  // namespace tandem
