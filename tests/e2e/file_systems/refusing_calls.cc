// Loaded before a program's libraries: system calls that a file system may not
// have fail with the error that it would give. REFUSE: "flock=ENOSYS
// renameat2=EINVAL fsync=EINVAL fsync_folder=EINVAL".

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

// 0: it is not refused.
int ErrorFor(const char* call) {
  const char* text = getenv("REFUSE");
  const size_t length = strlen(call);
  for (; text != nullptr; text = strchr(text + 1, ' ')) {
    if (*text == ' ') ++text;
    if (strncmp(text, call, length) != 0 || text[length] != '=') continue;
    const char* const name = text + length + 1;
    if (strncmp(name, "EINVAL", 6) == 0) return EINVAL;
    if (strncmp(name, "ENOSYS", 6) == 0) return ENOSYS;
    if (strncmp(name, "ENOLCK", 6) == 0) return ENOLCK;
    if (strncmp(name, "EOPNOTSUPP", 10) == 0) return EOPNOTSUPP;
    abort();
  }
  return 0;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int Fail(int error) {
  errno = error;
  return -1;
}

bool IsFolder(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

extern "C" int flock(int descriptor, int operation) noexcept {
  if (const int error = ErrorFor("flock")) return Fail(error);
  static const auto next = Next<int (*)(int, int)>("flock");
  return next(descriptor, operation);
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder,
                         const char* to, unsigned flags) noexcept {
  const int error = flags == 0 ? 0 : ErrorFor("renameat2");
  if (error != 0) return Fail(error);
  static const auto next =
      Next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  return next(from_folder, from, to_folder, to, flags);
}

extern "C" int fsync(int descriptor) {
  const int error = ErrorFor(IsFolder(descriptor) ? "fsync_folder" : "fsync");
  if (error != 0) return Fail(error);
  static const auto next = Next<int (*)(int)>("fsync");
  return next(descriptor);
}
