#include "tools/trainer/job/save_folder.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/comm/group_agreement.h"
#include "core/files/atomic_file.h"
#include "core/files/atomic_folder.h"
#include "core/program/exit_code.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer_files.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Hosts of a network file system may see what another one has made this much
// later.
constexpr std::chrono::seconds kSeenLater(10);

// A job before this one that is being killed still has the folder this long.
constexpr std::chrono::seconds kEndsLater(10);

std::string Message(const std::string& folder, absl::string_view why) {
  return absl::StrCat("--save_dir=", folder, ": ", why);
}

// An error that the user can mend.
absl::Status FolderError(const std::string& folder, const std::string& why) {
  return absl::FailedPreconditionError(Message(folder, why));
}

// An error of the system.
absl::Status FolderError(const std::string& folder, const absl::Status& why) {
  return RefusedIfMendable(
      absl::Status(why.code(), Message(folder, why.message())));
}

absl::Status CheckLink(const std::string& folder) {
  std::error_code error;
  if (!fs::is_symlink(folder, error) || fs::exists(folder, error)) {
    return absl::OkStatus();
  }
  return FolderError(
      folder,
      absl::StrCat("it is a link to ", fs::read_symlink(folder, error).string(),
                   ", which is not there: make that, or remove it"));
}

// Makes a folder as a checkpoint is made; where it is.
absl::StatusOr<std::string> MakeProbe(const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(CheckLink(folder));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return FolderError(
        folder, absl::ErrnoToStatus(error.value(), "cannot make the folder"));
  }
  const auto make = [&]() -> absl::StatusOr<std::string> {
    TANDEM_ASSIGN_OR_RETURN(
        const std::unique_ptr<AtomicFolder> probe,
        AtomicFolder::Create(absl::StrCat(folder, "/", kProbeName)));
    TANDEM_RETURN_IF_ERROR(
        WriteFileAtomically(probe->temporary() + "/file", "probe"));
    return probe->Commit();
  };
  absl::StatusOr<std::string> made = make();
  if (made.ok()) return made;
  return FolderError(folder, made.status());
}

bool Sees(const std::string& folder, const std::string& probe) {
  std::error_code error;
  const auto end = std::chrono::steady_clock::now() + kSeenLater;
  while (!fs::exists(probe, error)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    // Has the system ask the server again.
    fs::directory_iterator(fs::path(folder), error);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return true;
}

absl::Status LookFor(const std::string& folder, const std::string& probe) {
  if (Sees(folder, probe)) return absl::OkStatus();
  return FolderError(
      folder,
      absl::StrCat("this rank does not see what rank 0 has made there (", probe,
                   "): every rank writes its part of a checkpoint, so "
                   "the folder must be one that all hosts share"));
}

absl::Status Lock(const std::string& folder, OwnedFd* lock) {
  absl::StatusOr<OwnedFd> locked = LockFolder(folder, kEndsLater);
  if (locked.ok()) {
    *lock = *std::move(locked);
    return absl::OkStatus();
  }
  return FolderError(
      folder,
      "another job has it: wait for its end, or give another folder (if that "
      "is a rank of this job, it was started in a way that is not known here: "
      "give --rank and --world_size, or start with --nproc_per_node)");
}

}  // namespace

absl::Status TrySaveFolder(const std::string& folder) {
  if (folder.empty()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckLink(folder));
  const std::string there = NearestThere(folder);
  std::error_code error;
  if (!fs::is_directory(there, error)) {
    return FolderError(folder,
                       absl::ErrnoToStatus(ENOTDIR, "cannot make the folder"));
  }
  if (access(there.c_str(), W_OK | X_OK) != 0) {
    return FolderError(
        folder,
        absl::ErrnoToStatus(errno, absl::StrCat("cannot write in ", there)));
  }
  OwnedFd lock;
  return fs::is_directory(folder, error) ? Lock(folder, &lock)
                                         : absl::OkStatus();
}

std::string NearestThere(const std::string& path) {
  std::error_code error;
  fs::path there = fs::absolute(path, error).lexically_normal();
  if (there.filename().empty()) there = there.parent_path();
  while (!fs::exists(there, error) && there.has_relative_path()) {
    there = there.parent_path();
  }
  return there.string();
}

absl::Status PrepareSaveFolder(const std::string& folder, Communicator& world,
                               SaveFolder* own) {
  *own = SaveFolder();
  if (folder.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> probe = std::string();
  if (world.rank() == 0) {
    std::error_code error;
    const bool is_new = !fs::exists(folder, error);
    probe = MakeProbe(folder);
    if (is_new && probe.ok()) own->made = folder;
  }
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(probe.status(), "tried --save_dir", world));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world.AllGatherString(*probe, [] { return "where --save_dir is"; }));
  absl::Status mine = LookFor(folder, all.front());
  // All ranks have let go of it by now.
  if (mine.ok() && world.rank() == 0) mine = Lock(folder, &own->lock);
  const absl::Status seen = AgreeOnSuccess(mine, "seen --save_dir", world);
  if (world.rank() == 0) RemoveFolder(*probe).IgnoreError();
  return seen;
}

void RemoveUnusedFolder(const SaveFolder& own) {
  if (!own.made.empty()) rmdir(own.made.c_str());  // if there is nothing in it
}

namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "tokenizer";

absl::Status Keep(const TrainOptions& options) {
  const std::string source = JobTokenizer(options);
  if (source.empty()) return absl::OkStatus();
  const std::string folder = absl::StrCat(options.save_dir, "/", kFolder);
  std::error_code error;
  fs::create_directories(folder, error);
  const absl::Status kept =
      error
          ? absl::ErrnoToStatus(error.value(),
                                absl::StrCat("cannot make the folder ", folder))
          : SaveTokenizer(source, folder);
  return Annotate(kept, absl::StrCat("--save_dir=", options.save_dir));
}

}  // namespace

std::string JobTokenizer(const TrainOptions& options) {
  return HasTokenizer(options.data_dir) ? options.data_dir
                                        : KeptTokenizer(options.init_from);
}

absl::Status CheckKeptTokenizer(const TrainOptions& options) {
  const std::string source = JobTokenizer(options);
  if (options.save_dir.empty() || options.dataset != "tokens" ||
      source.empty()) {
    return absl::OkStatus();
  }
  return Annotate(CheckNoOtherTokenizer(
                      source, absl::StrCat(options.save_dir, "/", kFolder)),
                  absl::StrCat("--save_dir=", options.save_dir));
}

absl::Status KeepTokenizer(const TrainOptions& options, Communicator& world) {
  if (options.save_dir.empty() || options.dataset != "tokens") {
    return absl::OkStatus();
  }
  const absl::Status mine =
      world.rank() == 0 ? Keep(options) : absl::OkStatus();
  return AgreeOnSuccess(mine, "kept the texts' tokenizer", world);
}

std::string KeptTokenizer(const std::string& path) {
  if (path.empty()) return "";
  if (HasTokenizer(path)) return path;
  // A file, or one of a folder of checkpoints.
  std::error_code error;
  const bool is_one =
      fs::is_regular_file(path, error) || IsCheckpointFolder(path);
  const fs::path folder =
      is_one ? fs::path(path).parent_path() : fs::path(path);
  const std::string kept = (folder / kFolder).string();
  return HasTokenizer(kept) ? kept : "";
}

}  // namespace tandem
