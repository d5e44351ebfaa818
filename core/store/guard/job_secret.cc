#include "core/store/guard/job_secret.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/digest/hmac_sha256.h"

namespace tandem {

absl::Status CheckPrivate(const struct stat& file, const std::string& name,
                          const std::string& mend) {
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (file.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " is a file of user ", file.st_uid,
        ", but this process is of user ", geteuid(),
        ": give a file of yours, on a file system that keeps owners and "
        "modes"));
  }
  if ((file.st_mode & kOthers) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(name, " is open to others (mode ",
                   absl::StrFormat("%04o", file.st_mode & 07777), "): ", mend));
}

namespace {

struct State {
  absl::Mutex mutex;
  std::string secret;
};

State& OfProcess() {
  static State* const state = new State;
  return *state;
}

}  // namespace

void SetJobSecret(const std::string& secret) {
  State& state = OfProcess();
  absl::MutexLock lock(&state.mutex);
  state.secret = secret;
}

std::string JobSecret() {
  State& state = OfProcess();
  absl::MutexLock lock(&state.mutex);
  return state.secret;
}

namespace {

std::string Name(const std::string& path) {
  return absl::StrCat("the job secret in ", path);
}

absl::Status CheckSize(size_t bytes, const std::string& path) {
  if (bytes >= kLeastSecretBytes && bytes <= kMostSecretBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Name(path), " has ", bytes, " bytes, expected ", kLeastSecretBytes,
      " to ", kMostSecretBytes,
      ": make one with (umask 077; openssl rand -hex 32 > ", path, ")"));
}

// Another user's file, or links in a circle: who gave the path can mend it.
absl::Status CannotOpen(int error, const std::string& path) {
  const absl::Status status =
      absl::ErrnoToStatus(error, absl::StrCat("open ", Name(path)));
  if (absl::IsPermissionDenied(status) || absl::IsUnknown(status)) {
    return absl::FailedPreconditionError(status.message());
  }
  return status;
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  // Nobody waits for a pipe's writer.
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return CannotOpen(errno, path);
  struct stat file {};
  if (fstat(fd.get(), &file) != 0)
    return absl::ErrnoToStatus(errno, Name(path));
  if (!S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(path), " is no regular file"));
  }
  TANDEM_RETURN_IF_ERROR(CheckPrivate(
      file, Name(path),
      absl::StrCat("chmod 600 ", path,
                   ", and make a new secret if somebody may have read it")));
  const auto size = static_cast<size_t>(file.st_size);
  constexpr size_t kLineEnd = 2;  // at most, and not the secret's
  if (size > kMostSecretBytes + kLineEnd) return CheckSize(size, path);
  std::string secret(size, '\0');
  const ssize_t got = pread(fd.get(), &secret[0], secret.size(), 0);
  if (got < 0) return absl::ErrnoToStatus(errno, Name(path));
  secret.resize(static_cast<size_t>(got));
  secret =
      std::string(absl::StripSuffix(absl::StripSuffix(secret, "\n"), "\r"));
  TANDEM_RETURN_IF_ERROR(CheckSize(secret.size(), path));
  return secret;
}

absl::StatusOr<OwnedFd> NewSecretFile() {
  TANDEM_ASSIGN_OR_RETURN(const std::string random, RandomBytes(32));
  const std::string secret = absl::BytesToHexString(random);
  OwnedFd fd(memfd_create("tandem job secret", MFD_CLOEXEC));
  if (!fd || fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 ||
      write(fd.get(), secret.data(), secret.size()) !=
          static_cast<ssize_t>(secret.size())) {
    return absl::ErrnoToStatus(errno, "make a job secret");
  }
  return fd;
}

std::string PathOfDescriptor(int fd) {
  return absl::StrCat("/proc/", getpid(), "/fd/", fd);
}

}  // namespace tandem
