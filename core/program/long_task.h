// Long task: a preparation that says what it does if it takes long.

#ifndef TANDEM_CORE_PROGRAM_LONG_TASK_H_
#define TANDEM_CORE_PROGRAM_LONG_TASK_H_

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"

namespace tandem {

// Says nothing of what ends within 2 s. Else there are two lines on stderr,
// "loading weights from gpt2 ..." by then, and "loading weights from gpt2 took
// 12.3 s" at the end of the block.
//
//   const LongTask task("loading weights from gpt2");
class LongTask {
 public:
  struct Options {
    bool speaks = true;  // on one rank of several
    std::chrono::milliseconds patience{2000};
    std::FILE* out = stderr;  // outlives this
  };

  explicit LongTask(std::string what) : LongTask(std::move(what), Options()) {}
  LongTask(std::string what, const Options& options);
  ~LongTask();
  LongTask(const LongTask&) = delete;
  LongTask& operator=(const LongTask&) = delete;

  // For tasks of several ranks: one speaks.
  static Options SpeaksIf(bool speaks) { return {speaks}; }

 private:
  void Watch();

  const std::string what_;
  const Options options_;
  const char* const clear_;  // takes a bar off a terminal's line
  const std::chrono::steady_clock::time_point begun_;
  absl::Notification ended_;
  bool is_told_ = false;  // the watch's, until that has ended
  std::thread watch_;     // last: it reads the others
};

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_LONG_TASK_H_
