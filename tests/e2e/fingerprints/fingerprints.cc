// The final weights of many small jobs, as fingerprints: whether a change of
// the code has changed a bit.
//
//   bazel run //tests/e2e/fingerprints -- --out=before.txt
//   bazel run //tests/e2e/fingerprints -- --compare=before.txt
//
// The second command, after the change, says which jobs differ, and fails if
// any does. Both belong on one kind of processor; --train=PATH runs the trainer
// of another build, to record a list of it there.

#include <stdlib.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/device/host_resources.h"
#include "core/files/user_path.h"
#include "core/program/exit_code.h"
#include "tests/e2e/fingerprints/fingerprint_jobs.h"
#include "tests/e2e/fingerprints/fingerprint_list.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

ABSL_FLAG(std::string, train, "",
          "The trainer that runs the jobs; empty: the one of this build.");
ABSL_FLAG(std::string, out, "",
          "File that the list of fingerprints is written to; empty: none.");
ABSL_FLAG(std::string, compare, "",
          "A list of another build, from this kind of processor, that the "
          "fingerprints are compared with; empty: none.");

namespace tandem {
namespace {

absl::StatusOr<std::string> TrainerPath() {
  const std::string given = UserPath(absl::GetFlag(FLAGS_train));
  if (given.empty()) return std::string(kTrain);
  std::error_code error;
  if (std::filesystem::is_regular_file(given, error)) return given;
  return absl::NotFoundError(absl::StrCat(
      "--train=", given,
      ": there is no such program; bazel-bin/tools/train is a build's"));
}

// Empty unless there is one to compare with.
absl::StatusOr<FingerprintList> RecordedList() {
  const std::string path = UserPath(absl::GetFlag(FLAGS_compare));
  if (path.empty()) return FingerprintList();
  const auto recorded = ParseFingerprints(FileContents(path));
  if (!recorded.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare=", path, ": ", recorded.status().message()));
  }
  const std::string here = DescribeProcessor();
  if (recorded->processor == here) return recorded;
  return absl::FailedPreconditionError(absl::StrCat(
      "--compare=", path, " is from ", recorded->processor, ", and this is ",
      here,
      ", whose kernels differ in the last bits: record a list of that "
      "build here (--train=PATH --out=FILE), and compare with it"));
}

FingerprintList RunAll(const std::string& train) {
  FingerprintList found;
  found.processor = DescribeProcessor();
  for (const FingerprintJob& job : FingerprintJobs(NewText("text"))) {
    const absl::StatusOr<std::string> fingerprint =
        RunForFingerprint(train, job);
    found.jobs.emplace_back(job.name, fingerprint.value_or(kFailed));
    std::printf("%s %s\n", job.name.c_str(), found.jobs.back().second.c_str());
    std::fflush(stdout);
    if (fingerprint.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", job.name.c_str(),
                 std::string(fingerprint.status().message()).c_str());
  }
  return found;
}

absl::Status Write(const FingerprintList& list, const std::string& path) {
  std::ofstream file(path);
  file << FingerprintText(list) << std::flush;
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("--out=", path, " cannot be written"));
}

// How many jobs have failed or differ.
absl::StatusOr<size_t> Main() {
  TANDEM_ASSIGN_OR_RETURN(const std::string train, TrainerPath());
  TANDEM_ASSIGN_OR_RETURN(const FingerprintList recorded, RecordedList());
  const std::string folder = NewFolder("fingerprints");
  setenv("TEST_TMPDIR", folder.c_str(), 1);  // where jobs leave their files
  const FingerprintList found = RunAll(train);
  std::filesystem::remove_all(folder);
  const std::vector<std::string> different =
      DifferentFingerprints(recorded, found);
  for (const std::string& line : different) std::printf("%s\n", line.c_str());
  std::printf("%zu jobs, %zu %s\n", found.jobs.size(), different.size(),
              recorded.jobs.empty() ? "failed" : "fingerprints differ");
  const std::string out = UserPath(absl::GetFlag(FLAGS_out));
  if (!out.empty()) TANDEM_RETURN_IF_ERROR(Write(found, out));
  return different.size();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<size_t> different = tandem::Main();
  if (!different.ok()) {
    return tandem::Conclude("fingerprints", different.status());
  }
  return *different == 0 ? 0 : tandem::kExitFailed;
}
