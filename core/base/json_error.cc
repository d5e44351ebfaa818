#include "core/base/json_error.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostShown = 40;
// In what the parser says of a surrogate without its other half.
constexpr char kSurrogate[] = " - invalid string: surrogate ";

bool IsOfWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         c == '.' || c == '+' || c == '-';
}

// The word that the byte is of, or the byte.
absl::string_view WordAt(absl::string_view text, size_t at) {
  size_t begin = at;
  size_t end = at + 1;
  if (IsOfWord(text[at])) {
    while (begin > 0 && IsOfWord(text[begin - 1])) --begin;
    while (end < text.size() && IsOfWord(text[end])) ++end;
  }
  return text.substr(begin, std::min(end - begin, kMostShown));
}

// "expected string literal", of "... - unexpected '}'; expected string
// literal", as the parser says it. Empty where it expected nothing by name.
absl::string_view Expectation(absl::string_view said) {
  const size_t reason = said.find(" - ");
  const size_t expected = said.rfind("; expected ");
  if (reason == absl::string_view::npos ||
      expected == absl::string_view::npos ||
      !absl::StartsWith(said.substr(reason), " - unexpected ")) {
    return "";
  }
  return said.substr(expected + 2);
}

// Where the byte is that does not belong there, `read` bytes with it.
using Place = std::string (*)(absl::string_view text, size_t read);

std::string LineText(absl::string_view text, size_t read) {
  const absl::string_view before = text.substr(0, read);
  return absl::StrCat("line ",
                      std::count(before.begin(), before.end(), '\n') + 1);
}

std::string ByteText(absl::string_view, size_t read) {
  return absl::StrCat("byte ", read);
}

std::string Describe(absl::string_view text, const Json::parse_error& error,
                     Place place) {
  const size_t read = error.byte;
  if (read == 0 || read > text.size()) return ": it ends too early";
  const std::string where = place(text, read);
  const absl::string_view said = error.what();
  if (absl::StrContains(said, kSurrogate)) {
    return absl::StrCat(": ", where,
                        " ends a lone surrogate, \\ud800 to \\udfff without "
                        "its other half, which is no character");
  }
  const absl::string_view expected = Expectation(said);
  return absl::StrCat(": ", where, " has '",
                      absl::CHexEscape(WordAt(text, read - 1)), "'",
                      expected.empty() ? "" : ", ", expected);
}

std::string ErrorText(absl::string_view text, Place place) {
  try {
    [[maybe_unused]] const Json parsed = Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    return Describe(text, error, place);
  } catch (const Json::exception&) {
    return ": a number in it is more than a double holds";
  }
  return "";
}

}  // namespace

std::string JsonError(absl::string_view text) {
  return ErrorText(text, LineText);
}

std::string JsonErrorInLine(absl::string_view line) {
  return ErrorText(line, ByteText);
}

}  // namespace tandem
