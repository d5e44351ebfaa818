#include "core/checkpoint/folder/step_folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/files/atomic_folder.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
// The newest of a folder of checkpoints of one file, which were written before
// there were folders.
constexpr char kLatestFile[] = "latest.safetensors";

std::string FolderName(int64_t step, int copy) {
  return copy == 0 ? StepFolderName(step)
                   : absl::StrCat(StepFolderName(step), ".", copy);
}

// Nothing: it is no checkpoint's name.
std::optional<StepFolder> ParseName(absl::string_view name) {
  StepFolder folder;
  const std::string whole(name);
  if (!absl::ConsumePrefix(&name, kPrefix)) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits('.', 1));
  if (!absl::SimpleAtoi(parts.first, &folder.step) || folder.step < 0) {
    return std::nullopt;
  }
  if (!parts.second.empty() && !absl::SimpleAtoi(parts.second, &folder.copy)) {
    return std::nullopt;
  }
  if (whole != FolderName(folder.step, folder.copy)) return std::nullopt;
  return folder;
}

}  // namespace

std::string StepFolderName(int64_t step) {
  return absl::StrFormat("%s%09d", kPrefix, step);
}

std::vector<StepFolder> StepFolders(const std::string& folder) {
  std::vector<StepFolder> all;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::optional<StepFolder> parsed =
        ParseName(it->path().filename().string());
    if (!parsed.has_value()) continue;
    parsed->path = it->path().string();
    all.push_back(*std::move(parsed));
  }
  std::sort(all.begin(), all.end(),
            [](const StepFolder& a, const StepFolder& b) {
              return std::tie(a.step, a.copy) > std::tie(b.step, b.copy);
            });
  return all;
}

std::vector<StepFolder> CompleteCheckpoints(const std::string& folder) {
  std::vector<StepFolder> all = StepFolders(folder);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const StepFolder& each) {
                             return !IsCheckpointFolder(each.path);
                           }),
            all.end());
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
                                    const std::string& newest) {
  std::vector<StepFolder> removed;
  if (retention.keep_last == 0) return removed;
  int64_t kept = 0;
  for (const StepFolder& each : all) {
    const bool is_due =
        retention.keep_every > 0 && each.step % retention.keep_every == 0;
    // By its name: the path of the folder may be written otherwise ("saved/").
    const bool is_newest =
        fs::path(each.path).filename() == fs::path(newest).filename();
    if (kept++ < retention.keep_last || is_due || is_newest) continue;
    removed.push_back(each);
  }
  return removed;
}

absl::Status LinkBest(const std::string& folder,
                      const std::string& checkpoint) {
  const fs::path link = fs::path(folder) / kBestLink;
  const std::string made = absl::StrCat(link.string(), ".new");
  std::error_code error;
  const fs::file_status there = fs::symlink_status(link, error);
  if (fs::exists(there) && !fs::is_symlink(there)) {
    return absl::FailedPreconditionError(absl::StrCat(
        link.string(), " is no link to a checkpoint: give it another name"));
  }
  fs::remove(made, error);
  error.clear();
  fs::create_symlink(fs::path(checkpoint).filename(), made, error);
  if (!error) fs::rename(made, link, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(
      error.value(),
      absl::StrCat("cannot make the link ", link.string(), " to ", checkpoint));
}

absl::Status RemoveOld(const std::string& folder, const Retention& retention,
                       const std::string& newest) {
  if (retention.keep_last == 0) return absl::OkStatus();
  std::vector<StepFolder> usable = CompleteCheckpoints(folder);
  usable.erase(std::remove_if(usable.begin(), usable.end(),
                              [](const StepFolder& each) {
                                return !ReadManifest(each.path).ok();
                              }),
               usable.end());
  std::vector<StepFolder> removed = ToBeRemoved(usable, retention, newest);
  std::reverse(removed.begin(), removed.end());
  std::error_code error;
  const fs::path best = fs::read_symlink(fs::path(folder) / kBestLink, error);
  for (const StepFolder& each : removed) {
    if (fs::path(each.path).filename() == best) continue;
    TANDEM_RETURN_IF_ERROR(FaultPoint("remove_old"));
    TANDEM_RETURN_IF_ERROR(RemoveFolder(each.path));
  }
  return absl::OkStatus();
}

std::vector<std::string> RemoveIncompleteCheckpoints(const std::string& folder,
                                                     const std::string& job) {
  return RemoveAbandonedFolders(
      folder,
      [](absl::string_view name) {
        return name == kProbeName || ParseName(name).has_value();
      },
      job);
}

}  // namespace tandem
