#include "core/checkpoint/folder/step_folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/files/atomic_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
// The newest of a folder of checkpoints of one file, which were written before
// there were folders.
constexpr char kLatestFile[] = "latest.safetensors";

// -1: it is no checkpoint's name.
int64_t StepOf(absl::string_view name) {
  int64_t step = -1;
  const std::string whole(name);
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::SimpleAtoi(name, &step) ||
      whole != StepFolderName(step)) {
    return -1;
  }
  return step;
}

}  // namespace

std::string StepFolderName(int64_t step) {
  return absl::StrFormat("%s%09d", kPrefix, step);
}

std::vector<StepFolder> CompleteCheckpoints(const std::string& folder) {
  std::vector<StepFolder> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const int64_t step = StepOf(entry.path().filename().string());
    if (step >= 0 && entry.is_directory(error)) {
      all.push_back({step, entry.path().string()});
    }
  }
  std::sort(
      all.begin(), all.end(),
      [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return all;
}

absl::StatusOr<std::string> CheckpointAt(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || IsCheckpointFolder(path)) return path;
  const std::vector<StepFolder> all = CompleteCheckpoints(path);
  if (!all.empty()) return all.front().path;
  const std::string file = absl::StrCat(path, "/", kLatestFile);
  if (fs::exists(file, error)) return file;
  return absl::NotFoundError(
      absl::StrCat(path, " is no checkpoint and holds none: there is neither ",
                   kManifestFile, " nor a folder ", kPrefix, "N in it"));
}

std::optional<std::string> CheckpointFolderAt(const std::string& path) {
  const absl::StatusOr<std::string> meant = CheckpointAt(path);
  if (!meant.ok() || !IsCheckpointFolder(*meant)) return std::nullopt;
  return *meant;
}

std::vector<StepFolder> ToBeRemoved(const std::vector<StepFolder>& all,
                                    const Retention& retention,
                                    int64_t newest) {
  std::vector<StepFolder> removed;
  if (retention.keep_last == 0) return removed;
  int64_t kept = 0;
  for (const StepFolder& each : all) {
    const bool is_due =
        retention.keep_every > 0 && each.step % retention.keep_every == 0;
    if (kept++ < retention.keep_last || is_due || each.step == newest) continue;
    removed.push_back(each);
  }
  return removed;
}

absl::Status RemoveOld(const std::string& folder, const Retention& retention,
                       int64_t newest) {
  std::vector<StepFolder> removed =
      ToBeRemoved(CompleteCheckpoints(folder), retention, newest);
  std::reverse(removed.begin(), removed.end());
  for (const StepFolder& each : removed) {
    TANDEM_RETURN_IF_ERROR(RemoveFolder(each.path));
  }
  return absl::OkStatus();
}

std::vector<std::string> RemoveIncompleteCheckpoints(
    const std::string& folder) {
  return RemoveAbandonedFolders(
      folder, [](absl::string_view name) { return StepOf(name) >= 0; });
}

}  // namespace tandem
