#include "core/program/long_task.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace tandem {

LongTask::LongTask(std::string what, const Options& options)
    : what_(std::move(what)),
      options_(options),
      clear_(isatty(fileno(options.out)) != 0 ? "\r\x1b[K" : ""),
      begun_(std::chrono::steady_clock::now()) {
  if (options_.speaks) watch_ = std::thread([this] { Watch(); });
}

LongTask::~LongTask() {
  if (!watch_.joinable()) return;
  ended_.Notify();
  watch_.join();
  if (!is_told_) return;
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - begun_;
  absl::FPrintF(options_.out, "%s%s took %.1f s\n", clear_, what_,
                taken.count());
  std::fflush(options_.out);
}

void LongTask::Watch() {
  if (ended_.WaitForNotificationWithTimeout(
          absl::FromChrono(options_.patience))) {
    return;
  }
  is_told_ = true;
  absl::FPrintF(options_.out, "%s%s ...\n", clear_, what_);
  std::fflush(options_.out);
}

}  // namespace tandem
