#include "core/autotune/choice_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// Thousands of choices: what is longer was not written by us.
constexpr size_t kGreatestFile = size_t{4} << 20;

absl::Status SystemFailure(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status MakeParentFolder(const std::string& path) {
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(
      error.value(), absl::StrCat("cannot make the folder ", folder.string()));
}

}  // namespace

Choices ParseChoices(absl::string_view text) {
  Choices choices;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    if (fields.size() == 2 && !fields[0].empty() && !fields[1].empty()) {
      choices[fields[0]] = fields[1];
    }
  }
  return choices;
}

std::string FormatChoices(const Choices& choices) {
  std::string text;
  for (const auto& [key, choice] : choices) {
    absl::StrAppend(&text, key, "\t", choice, "\n");
  }
  return text;
}

std::string ChoiceFile::DefaultPath(const Environment& environment) {
  if (const auto cache = environment.Get("XDG_CACHE_HOME")) {
    return *cache + "/tandem/kernels";
  }
  const auto home = environment.Get("HOME");
  return home ? *home + "/.cache/tandem/kernels" : "";
}

ChoiceFile::ChoiceFile(std::string path, OwnedFd fd)
    : path_(std::move(path)), fd_(std::move(fd)) {}

absl::StatusOr<std::unique_ptr<ChoiceFile>> ChoiceFile::Open(
    const std::string& path) {
  TANDEM_RETURN_IF_ERROR(MakeParentFolder(path));
  OwnedFd fd(open(path.c_str(),
                  O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!fd) return SystemFailure("open", path);
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return SystemFailure("look at", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no regular file"));
  }
  return absl::WrapUnique(new ChoiceFile(path, std::move(fd)));
}

absl::StatusOr<std::string> ChoiceFile::Text() const {
  std::string text;
  char part[1 << 16];
  for (off_t at = 0; text.size() <= kGreatestFile;) {
    const ssize_t count = pread(fd_.get(), part, sizeof(part), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemFailure("read", path_);
    if (count == 0) return text;
    text.append(part, static_cast<size_t>(count));
    at += count;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      path_, " has more than ", kGreatestFile, " bytes: remove it"));
}

absl::StatusOr<Choices> ChoiceFile::Read() {
  absl::MutexLock lock(&mutex_);
  TANDEM_ASSIGN_OR_RETURN(const std::string text, Text());
  return ParseChoices(text);
}

absl::Status ChoiceFile::Lock(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return SystemFailure("lock", path_);
    if (std::chrono::steady_clock::now() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("another process has locked ", path_, " for ",
                       absl::FormatDuration(absl::FromChrono(timeout))));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return absl::OkStatus();
}

absl::Status ChoiceFile::Append(absl::string_view line) {
  while (!line.empty()) {
    const ssize_t count = write(fd_.get(), line.data(), line.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemFailure("write", path_);
    line.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChoiceFile::FindOr(
    const std::string& key,
    const std::function<bool(const std::string&)>& is_known,
    const std::function<std::string()>& choose,
    std::chrono::milliseconds timeout) {
  absl::MutexLock mutex(&mutex_);
  TANDEM_RETURN_IF_ERROR(Lock(timeout));
  const absl::Cleanup unlock = [this] { flock(fd_.get(), LOCK_UN); };
  TANDEM_ASSIGN_OR_RETURN(std::string text, Text());
  const Choices there = ParseChoices(text);
  const auto found = there.find(key);
  if (found != there.end() && is_known(found->second)) return found->second;
  const std::string choice = choose();
  // Behind a line that lacks its end, a full disk's, say.
  const bool is_cut = !text.empty() && text.back() != '\n';
  TANDEM_RETURN_IF_ERROR(
      Append(absl::StrCat(is_cut ? "\n" : "", FormatChoices({{key, choice}}))));
  return choice;
}

}  // namespace tandem
