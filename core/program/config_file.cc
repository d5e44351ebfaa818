#include "core/program/config_file.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/files/regular_file.h"

namespace tandem {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 20;

absl::StatusOr<std::string> Unquoted(absl::string_view value) {
  if (!absl::StartsWith(value, "\"")) return std::string(value);
  std::string text;
  const bool ends = value.size() > 1 && absl::EndsWith(value, "\"");
  if (ends && absl::CUnescape(value.substr(1, value.size() - 2), &text)) {
    return text;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(value,
                   ": a value that begins with a quote ends with one, "
                   "with C's escapes between"));
}

absl::StatusOr<std::string> ReadLine(absl::string_view line) {
  absl::ConsumePrefix(&line, "-");
  absl::ConsumePrefix(&line, "-");
  const size_t equals = line.find('=');
  const absl::string_view name =
      absl::StripAsciiWhitespace(line.substr(0, equals));
  if (name.empty() || std::any_of(name.begin(), name.end(), [](char c) {
        return !absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
               c != '_' && c != '-';
      })) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", line, "' is no flag: expected name=value"));
  }
  if (equals == absl::string_view::npos) return absl::StrCat("--", name);
  TANDEM_ASSIGN_OR_RETURN(
      const std::string value,
      Unquoted(absl::StripAsciiWhitespace(line.substr(equals + 1))));
  return absl::StrCat("--", name, "=", value);
}

// Whether it is read as it stands.
bool IsPlain(absl::string_view value) {
  return value == absl::StripAsciiWhitespace(value) &&
         !absl::StartsWith(value, "\"") &&
         std::none_of(value.begin(), value.end(), [](char c) {
           return absl::ascii_iscntrl(static_cast<unsigned char>(c));
         });
}

}  // namespace

absl::StatusOr<std::vector<ConfigLine>> ReadConfigFile(
    const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadShortFile(path, kMostBytes));
  std::vector<ConfigLine> lines;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const absl::StatusOr<std::string> argument = ReadLine(line);
    if (!argument.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", argument.status().message()));
    }
    lines.push_back({number, *argument});
  }
  return lines;
}

std::string ConfigLineText(absl::string_view name, absl::string_view value) {
  return IsPlain(value)
             ? absl::StrCat(name, "=", value)
             : absl::StrCat(name, "=\"", absl::Utf8SafeCEscape(value), "\"");
}

}  // namespace tandem
