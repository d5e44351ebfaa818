#include "core/base/environment.h"

#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem {

Environment::Environment(std::map<std::string, std::string> variables)
    : variables_(std::move(variables)) {}

Environment Environment::OfProcess() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::pair<std::string, std::string> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    result.variables_.insert(std::move(variable));
  }
  return result;
}

absl::StatusOr<Environment> Environment::Parse(absl::string_view text) {
  Environment result;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StripAsciiWhitespace(line).empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    if (equals == 0 || equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected NAME=value, got '", line, "'"));
    }
    result.Set(std::string(line.substr(0, equals)),
               std::string(line.substr(equals + 1)));
  }
  return result;
}

std::optional<std::string> Environment::Get(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

absl::StatusOr<std::optional<int>> Environment::GetInt(
    const std::string& name) const {
  const std::optional<std::string> text = Get(name);
  if (!text.has_value()) return std::optional<int>();
  int value = 0;
  if (!absl::SimpleAtoi(*text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment says ", name, "='", *text,
                     "', which is no whole number of at most 2147483647; "
                     "correct or unset it"));
  }
  return std::optional<int>(value);
}

void Environment::Set(const std::string& name, const std::string& value) {
  variables_[name] = value;
}

std::vector<std::string> Environment::ToStrings() const {
  std::vector<std::string> result;
  result.reserve(variables_.size());
  for (const auto& [name, value] : variables_) {
    result.push_back(absl::StrCat(name, "=", value));
  }
  return result;
}

}  // namespace tandem
