// Autotuning cache: what was the fastest for what, in a file of the user's that
// many processes share.

#ifndef TANDEM_CORE_AUTOTUNE_CHOICE_FILE_H_
#define TANDEM_CORE_AUTOTUNE_CHOICE_FILE_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/base/environment.h"
#include "core/base/owned_fd.h"

namespace tandem {

using Choices = std::map<std::string, std::string>;  // by key

// "key<TAB>choice" lines. What is no such line is passed over: a file may have
// been written by anybody.
Choices ParseChoices(absl::string_view text);
std::string FormatChoices(const Choices& choices);

// Each key gets its choice from whichever process is the first to ask for it;
// the others wait for that one, and have the same, but for those who do not
// know it: theirs takes its place. Thread-safe.
class ChoiceFile {
 public:
  // $XDG_CACHE_HOME/tandem/kernels, else $HOME/.cache/tandem/kernels; empty
  // where neither variable says where.
  static std::string DefaultPath(const Environment& environment);

  // Makes the file, and its folder, where there is none. The error says which
  // path could not be made, opened or written, and why.
  static absl::StatusOr<std::unique_ptr<ChoiceFile>> Open(
      const std::string& path);

  absl::StatusOr<Choices> Read();

  // What stands there for `key`, if it `is_known`; else `choose`'s answer,
  // which is written down. DeadlineExceeded when another process keeps the file
  // locked for longer than `timeout`.
  absl::StatusOr<std::string> FindOr(
      const std::string& key,
      const std::function<bool(const std::string&)>& is_known,
      const std::function<std::string()>& choose,
      std::chrono::milliseconds timeout = std::chrono::seconds(20));

 private:
  ChoiceFile(std::string path, OwnedFd fd);

  absl::StatusOr<std::string> Text() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Lock(std::chrono::milliseconds timeout)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Append(absl::string_view line)
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const OwnedFd fd_;
  absl::Mutex mutex_;  // a file's lock is a process's
};

}  // namespace tandem

#endif  // TANDEM_CORE_AUTOTUNE_CHOICE_FILE_H_
