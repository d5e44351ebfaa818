#include "core/files/atomic_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/temporary_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Says which process writes the folder. Gone when it has its name.
constexpr char kOwnerFile[] = ".owner";
// In which who writes one writes something.
constexpr std::chrono::minutes kLongestPause(10);
constexpr std::chrono::minutes kUntouched = std::chrono::hours(24);
// Made beside the folders, to ask what time it is there.
constexpr char kTimeFile[] = ".time";
constexpr int kMostNames = 1000;

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return absl::OkStatus();
  errno = error.value();
  return WriteError(path, "removing it");
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Within which a process's number means one process: the machine, since it was
// started, and the container. Empty where /proc does not say.
std::string NamespaceOfProcesses() {
  std::error_code error;
  const std::string boot = FirstLine("/proc/sys/kernel/random/boot_id");
  const std::string container =
      fs::read_symlink("/proc/self/ns/pid", error).string();
  if (boot.empty() || container.empty()) return "";
  return absl::StrCat(boot, " ", container);
}

// When it was started, field 22 of its stat; "": there is none of that number.
std::string ProcessStart(pid_t pid) {
  const std::string stat = FirstLine(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  const std::vector<std::string> all(std::istream_iterator<std::string>(fields),
                                     {});
  return all.size() > 19 ? all[19] : "";
}

// Where it cannot be written, nobody knows who the owner is.
void WriteOwner(const std::string& folder, const std::string& job) {
  std::ofstream(absl::StrCat(folder, "/", kOwnerFile))
      << NamespaceOfProcesses() << "\n"
      << getpid() << " " << ProcessStart(getpid()) << "\n"
      << job << "\n";
}

struct Owner {
  std::string where, start, job;
  pid_t pid = 0;
};

Owner FolderOwner(const std::string& folder) {
  std::ifstream file(absl::StrCat(folder, "/", kOwnerFile));
  Owner owner;
  if (std::getline(file, owner.where)) file >> owner.pid >> owner.start;
  file >> owner.job;
  return owner;
}

// Nothing where that cannot be told.
std::optional<bool> Runs(const Owner& owner) {
  if (owner.where.empty() || owner.start.empty() ||
      owner.where != NamespaceOfProcesses()) {
    return std::nullopt;
  }
  const std::string start = ProcessStart(owner.pid);
  if (!start.empty()) return start == owner.start;
  // /proc may hide other users' processes.
  if (kill(owner.pid, 0) != 0 && errno == ESRCH) return false;
  return std::nullopt;
}

// What time it is in a folder: what other machines write there has the time of
// its file system's server, and not of this machine. Nothing where no file can
// be made.
std::optional<fs::file_time_type> TimeIn(const std::string& folder) {
  RemoveAbandonedFiles(
      folder, [](absl::string_view name) { return name == kTimeFile; });
  const TemporaryFile made =
      MakeTemporaryFile(absl::StrCat(folder, "/", kTimeFile));
  if (made.descriptor < 0) return std::nullopt;
  std::error_code error;
  const fs::file_time_type now = fs::last_write_time(made.path, error);
  unlink(made.path.c_str());
  close(made.descriptor);
  if (error) return std::nullopt;
  return now;
}

// The folder or a file in it was written within `last` before `now`.
bool IsTouched(const std::string& folder, fs::file_time_type now,
               fs::file_time_type::duration last) {
  std::error_code error;
  const auto is_new = [&](const fs::path& path) {
    const auto time = fs::last_write_time(path, error);
    return error ? true : now - time < last;
  };
  if (is_new(folder)) return true;
  fs::directory_iterator files(folder, error);
  return std::any_of(begin(files), end(files),
                     [&](const auto& each) { return is_new(each.path()); });
}

// Two machines may work for one job at the same time: it was queued anew while
// the first one, cut off from its scheduler, still ended.
bool IsAbandoned(const std::string& folder, const std::string& job,
                 std::optional<fs::file_time_type> now) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return false;
  const Owner owner = FolderOwner(folder);
  if (const std::optional<bool> runs = Runs(owner)) return !*runs;
  if (!now.has_value()) return false;
  const bool is_this_jobs = !job.empty() && owner.job == job;
  return !IsTouched(folder, *now, is_this_jobs ? kLongestPause : kUntouched);
}

bool IsTaken(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status)) return false;
  return !fs::is_directory(status) || !fs::is_empty(path, error) || error;
}

// A folder's new name beside what `path` is; an error leaves all as it was.
absl::StatusOr<std::string> Rename(const std::string& from,
                                   const std::string& path) {
  for (int i = 0; i < kMostNames; ++i) {
    const std::string to = i == 0 ? path : absl::StrCat(path, ".", i);
    if (IsTaken(to)) continue;
    if (rename(from.c_str(), to.c_str()) == 0) return to;
    // Another process was faster.
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) {
      return WriteError(path, "renaming the complete one to it");
    }
  }
  return absl::AlreadyExistsError(
      absl::StrCat("cannot write ", path, ": it and all of ", path, ".1 to ",
                   path, ".", kMostNames - 1, " are there"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFolder>> AtomicFolder::Create(
    const std::string& path, const std::string& job) {
  TANDEM_ASSIGN_OR_RETURN(std::string temporary, MakeTemporaryFolder(path));
  WriteOwner(temporary, job);
  return std::unique_ptr<AtomicFolder>(
      new AtomicFolder(path, std::move(temporary)));
}

AtomicFolder::AtomicFolder(std::string path, std::string temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

absl::StatusOr<std::string> AtomicFolder::Commit() {
  TANDEM_RETURN_IF_ERROR(SyncFolder(temporary_, path_));
  TANDEM_ASSIGN_OR_RETURN(const std::string name, Rename(temporary_, path_));
  committed_ = true;
  unlink(absl::StrCat(name, "/", kOwnerFile).c_str());
  SyncNewName(name);
  return name;
}

absl::Status RemoveFolder(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string doomed, MakeTemporaryFolder(path));
  // Onto an empty folder.
  if (rename(path.c_str(), doomed.c_str()) != 0) {
    const absl::Status error =
        WriteError(path, "renaming it before it is removed");
    rmdir(doomed.c_str());
    return error;
  }
  WriteOwner(doomed, /*job=*/"");
  return RemoveAll(doomed);
}

std::vector<std::string> RemoveAbandonedFolders(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine,
    const std::string& job) {
  std::vector<std::string> removed;
  const std::vector<std::string> names = TemporariesIn(folder, is_mine);
  if (names.empty()) return removed;
  const std::optional<fs::file_time_type> now = TimeIn(folder);
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (IsAbandoned(path, job, now) && RemoveAll(path).ok()) {
      removed.push_back(name);
    }
  }
  return removed;
}

absl::StatusOr<OwnedFd> LockFolder(const std::string& folder,
                                   std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  OwnedFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return OwnedFd();
    if (std::chrono::steady_clock::now() >= end) {
      return absl::AlreadyExistsError(
          absl::StrCat(folder, " is in use by another process"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return fd;
}

}  // namespace tandem
