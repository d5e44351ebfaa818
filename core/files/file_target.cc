#include "core/files/file_target.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr int kMostLinks = 40;  // as the kernel

absl::Status Refused(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot write '", path, "': ", why, "; give the name of a file"));
}

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

// The kernel's links to open files: what they say is no path.
bool IsOpenFile(const std::string& link) {
  return absl::StartsWith(RealPath(ParentDirectory(link)), "/proc/");
}

// The descriptor behind a link of this process's own, else -1.
int OwnDescriptor(const std::string& link) {
  int descriptor = -1;
  if (RealPath(ParentDirectory(link)) !=
          absl::StrCat("/proc/", getpid(), "/fd") ||
      !absl::SimpleAtoi(link.substr(link.rfind('/') + 1), &descriptor)) {
    return -1;
  }
  return descriptor;
}

std::string ReadLink(const std::string& link) {
  char text[PATH_MAX];
  const ssize_t length = readlink(link.c_str(), text, sizeof(text));
  const std::string next(text, length > 0 ? length : 0);
  return absl::StartsWith(next, "/")
             ? next
             : absl::StrCat(ParentDirectory(link), "/", next);
}

}  // namespace

std::string ParentDirectory(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<FileTarget> ResolveFileTarget(const std::string& path) {
  if (path.empty() || path.back() == '/') return Refused(path, "a directory");
  std::string at = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    struct stat status;
    // What cannot be looked at is for those to report who write there.
    if (lstat(at.c_str(), &status) != 0) return FileTarget{at, false};
    switch (status.st_mode & S_IFMT) {
      case S_IFREG:
        return FileTarget{at, false};
      case S_IFCHR:
      case S_IFIFO:
        return FileTarget{at, true};
      case S_IFDIR:
        return Refused(path, "a directory");
      case S_IFLNK:
        if (IsOpenFile(at)) return FileTarget{at, true};
        at = ReadLink(at);
        break;
      default:
        return Refused(path, "a disk or a socket");
    }
  }
  return Refused(path, "too many symbolic links");
}

absl::StatusOr<int> OpenInPlace(const FileTarget& target) {
  const int own = OwnDescriptor(target.path);
  // A pipe without a reader would be waited for.
  const int descriptor =
      own >= 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0)
               : open(target.path.c_str(),
                      O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0 && errno == ENXIO) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", target.path,
                     ": nobody reads from this pipe; start its reader first"));
  }
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot write ", target.path));
  }
  if (own < 0)
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

bool IsFileName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(absl::string_view("/\0", 2)) ==
             absl::string_view::npos;
}

}  // namespace tandem
