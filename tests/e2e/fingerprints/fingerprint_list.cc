#include "tests/e2e/fingerprints/fingerprint_list.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tandem {
namespace {

constexpr char kProcessor[] = "# ";

std::map<std::string, std::string> ByName(const FingerprintList& list) {
  return {list.jobs.begin(), list.jobs.end()};
}

}  // namespace

std::string FingerprintText(const FingerprintList& list) {
  std::string text = absl::StrCat(kProcessor, list.processor, "\n");
  for (const auto& [name, fingerprint] : list.jobs) {
    absl::StrAppend(&text, name, " ", fingerprint, "\n");
  }
  return text;
}

absl::StatusOr<FingerprintList> ParseFingerprints(absl::string_view text) {
  FingerprintList list;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, kProcessor)) {
      list.processor = std::string(line);
      continue;
    }
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", line, "\" is not a job's name and its weights_sha256"));
    }
    list.jobs.emplace_back(parts[0], parts[1]);
  }
  if (!list.processor.empty()) return list;
  return absl::InvalidArgumentError(
      "no line says which processor the list is from (\"# AMD EPYC (avx2)\")");
}

std::vector<std::string> DifferentFingerprints(const FingerprintList& recorded,
                                               const FingerprintList& found) {
  const std::map<std::string, std::string> before = ByName(recorded);
  const std::map<std::string, std::string> now = ByName(found);
  std::vector<std::string> lines;
  for (const auto& [name, fingerprint] : found.jobs) {
    const auto was = before.find(name);
    if (fingerprint == kFailed) {
      lines.push_back(absl::StrCat(name, " has failed"));
    } else if (was != before.end() && was->second != fingerprint) {
      lines.push_back(
          absl::StrCat(name, " is ", fingerprint, ", was ", was->second));
    }
  }
  for (const auto& [name, fingerprint] : recorded.jobs) {
    if (now.count(name) > 0) continue;
    lines.push_back(absl::StrCat(name, " is gone, was ", fingerprint));
  }
  return lines;
}

}  // namespace tandem
