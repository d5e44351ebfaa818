#include "datasets/tokenizers/byte_pair/pre_tokenizer.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/byte_pair/json_fields.h"

namespace tandem {
namespace {

bool Holds(absl::string_view letters, char letter) {
  return letters.find(letter) != absl::string_view::npos;
}

// Goes through an expression once, from the left to the right.
class Reader {
 public:
  explicit Reader(absl::string_view pattern)
      : pattern_(pattern), rest_(pattern) {}

  absl::Status Check() {
    while (!rest_.empty()) TANDEM_RETURN_IF_ERROR(Next());
    return absl::OkStatus();
  }

 private:
  absl::Status Refuse(absl::string_view what, absl::string_view remedy) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the regular expression ", pattern_,
                     " cannot be used: Oniguruma, whose it is, reads ", what,
                     " otherwise than PCRE2; ", remedy));
  }

  absl::Status Next() {
    const char first = rest_.front();
    if (first == '\\') return Escape();
    if (in_brackets_) return WithinBrackets(first);
    if (first == '{') return Count();
    if (first == '(') return Group();
    if (first == '^' || first == '$') {
      return Refuse(rest_.substr(0, 1), "leave it out");
    }
    if (first == '[') {
      in_brackets_ = true;
      // A ] that comes first is one of the characters.
      rest_.remove_prefix(absl::StartsWith(rest_, "[^") ? 2 : 1);
      if (absl::StartsWith(rest_, "]")) rest_.remove_prefix(1);
      return absl::OkStatus();
    }
    rest_.remove_prefix(1);
    return absl::OkStatus();
  }

  absl::Status Escape() {
    const absl::string_view escape = rest_.substr(0, 2);
    rest_.remove_prefix(escape.size());
    if (escape.size() < 2) return absl::OkStatus();  // PCRE2 refuses it
    const char letter = escape[1];
    if (Holds("pP", letter) && !absl::StartsWith(rest_, "{")) {
      return Refuse(escape, "put its property into braces");
    }
    if (Holds("wW", letter)) {
      return Refuse(escape, "say which characters: [\\p{L}\\p{N}_]");
    }
    if (!in_brackets_ && Holds("bBAzZG", letter)) {
      return Refuse(escape, "leave it out");
    }
    return absl::OkStatus();
  }

  absl::Status WithinBrackets(char first) {
    if (first == '[') return Refuse("[ within brackets", "write \\[ for it");
    if (first == ']') in_brackets_ = false;
    rest_.remove_prefix(1);
    return absl::OkStatus();
  }

  // Or a brace that is none.
  absl::Status Count() {
    size_t end = 1;
    bool has_comma = false;
    while (end < rest_.size() &&
           (absl::ascii_isdigit(static_cast<unsigned char>(rest_[end])) ||
            rest_[end] == ',')) {
      has_comma = has_comma || rest_[end] == ',';
      ++end;
    }
    if (end >= rest_.size() || rest_[end] != '}') {
      rest_.remove_prefix(1);
      return absl::OkStatus();
    }
    const absl::string_view count = rest_.substr(0, end + 1);
    rest_.remove_prefix(count.size());
    if (absl::StartsWith(count, "{,")) {
      return Refuse(count, "begin it with a 0");
    }
    const bool is_possessive = absl::StartsWith(rest_, "+");
    if (is_possessive || (!has_comma && absl::StartsWith(rest_, "?"))) {
      return Refuse(absl::StrCat(count, rest_.substr(0, 1)),
                    "put what comes before it, with the braces, into (?:...)");
    }
    return absl::OkStatus();
  }

  absl::Status Group() {
    const bool is_first = rest_.size() == pattern_.size();
    rest_.remove_prefix(1);
    if (!absl::StartsWith(rest_, "?")) return absl::OkStatus();
    for (const char* const known :
         {"?:", "?=", "?!", "?>", "?<=", "?<!", "?i:", "?-i:"}) {
      if (!absl::StartsWith(rest_, known)) continue;
      rest_.remove_prefix(absl::string_view(known).size());
      return absl::OkStatus();
    }
    if (is_first && absl::StartsWith(rest_, "?i)")) return absl::OkStatus();
    return Refuse(absl::StrCat("(", rest_.substr(0, 2)),
                  "only (?:...), (?i:...), (?=...) and their like are known");
  }

  const absl::string_view pattern_;
  absl::string_view rest_;
  bool in_brackets_ = false;
};

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
  const Json& pattern = JsonField(split, "pattern");
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

absl::Status CheckReadAlike(absl::string_view pattern) {
  return Reader(pattern).Check();
}

absl::StatusOr<PreTokenizer> ReadPreTokenizer(const Json& json) {
  const bool sequence = TextIn(json, "type") == "Sequence";
  const Json& parts = sequence ? JsonField(json, "pretokenizers") : json;
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
