// For tests: a limit on the size of files, where a full disk is meant. It is
// the process's: such tests are a program of their own.

#ifndef TANDEM_TESTS_CORE_TESTING_FILE_LIMIT_H_
#define TANDEM_TESTS_CORE_TESTING_FILE_LIMIT_H_

#include <signal.h>
#include <sys/resource.h>

namespace tandem {

// Files may not grow beyond `bytes` while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &old_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit old_ = {};
};

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_FILE_LIMIT_H_
