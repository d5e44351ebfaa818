// For tests: the warnings that glog is given.

#ifndef TANDEM_TESTS_CORE_TESTING_LOG_LINES_H_
#define TANDEM_TESTS_CORE_TESTING_LOG_LINES_H_

#include <glog/logging.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem {

// Collects warnings of the whole process while it lives. Thread-safe.
class LogLines : public google::LogSink {
 public:
  LogLines() { google::AddLogSink(this); }
  ~LogLines() override { google::RemoveLogSink(this); }

  using google::LogSink::send;
  void send(google::LogSeverity severity, const char* /*full_filename*/,
            const char* /*base_filename*/, int /*line*/,
            const google::LogMessageTime& /*time*/, const char* message,
            size_t length) override {
    if (severity != google::WARNING) return;
    absl::MutexLock lock(&mutex_);
    lines_.emplace_back(message, length);
  }

  // Waits until a line holds `text`; false when none came in a minute.
  bool Await(absl::string_view text) {
    const auto has_come = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      for (const std::string& line : lines_) {
        if (absl::StrContains(line, text)) return true;
      }
      return false;
    };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&has_come),
                                   absl::Minutes(1));
  }

  std::vector<std::string> lines() {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_LOG_LINES_H_
