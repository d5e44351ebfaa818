#include "tests/e2e/fingerprints/fingerprint_list.h"

#include <filesystem>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

constexpr char kProcessor[] = "# ";

std::map<std::string, std::string> ByName(const FingerprintList& list) {
  return {list.jobs.begin(), list.jobs.end()};
}

absl::Status Run(const std::string& train, const Flags& flags) {
  const ProgramResult result = RunProgram(train, flags);
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("exit code ", result.exit_code, ": ",
                                         result.err, "train ",
                                         absl::StrJoin(flags, " ")));
}

absl::StatusOr<std::string> RunIn(const std::string& folder,
                                  const std::string& train,
                                  const FingerprintJob& job) {
  Flags flags = job.flags;
  if (!job.first_part.empty()) {
    const std::string saved = folder + "/saved";
    TANDEM_RETURN_IF_ERROR(Run(
        train, Joined(Joined(flags, job.first_part), {"--save_dir=" + saved})));
    flags.push_back("--resume=" + saved);
  }
  const std::string metrics = folder + "/metrics.jsonl";
  flags.push_back("--metrics_file=" + metrics);
  TANDEM_RETURN_IF_ERROR(Run(train, flags));
  return Fingerprint(ReadEvents(metrics));
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

absl::StatusOr<std::string> RunForFingerprint(const std::string& train,
                                              const FingerprintJob& job) {
  const std::string folder = NewFolder("fingerprint");
  absl::StatusOr<std::string> fingerprint = RunIn(folder, train, job);
  std::filesystem::remove_all(folder);
  return fingerprint;
}

}  // namespace tandem
