#include "tests/e2e/fingerprints/fingerprint_run.h"

#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

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

absl::StatusOr<std::string> RunForFingerprint(const std::string& train,
                                              const FingerprintJob& job) {
  const std::string folder = NewFolder("fingerprint");
  absl::StatusOr<std::string> fingerprint = RunIn(folder, train, job);
  std::filesystem::remove_all(folder);
  return fingerprint;
}

}  // namespace tandem
