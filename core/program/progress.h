// Progress: how far a long job has come, and about how long it will take.

#ifndef TANDEM_CORE_PROGRAM_PROGRESS_H_
#define TANDEM_CORE_PROGRAM_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/time/time.h"

namespace tandem {

// What a job's size is counted in.
enum class ProgressUnit { kParts, kBytes };

// On a terminal, a bar that is redrawn at most ten times a second; elsewhere
// one plain line every few seconds, as a log wants it. (tqdm.) Not thread-safe.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::FILE* out = stderr;  // outlives this
    bool terminal = false;
    ProgressUnit unit = ProgressUnit::kParts;
    Clock::time_point start = Clock::now();
  };

  // To stderr, which may be a terminal.
  static Options ToStderr(ProgressUnit unit = ProgressUnit::kParts);

  // `what` names the job: "epoch 1/3".
  Progress(std::string what, int64_t total, const Options& options);
  // Takes the bar off the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total` are done; `note` is shown behind it.
  void Update(int64_t done, const std::string& note,
              Clock::time_point now = Clock::now());

  // For parts that take about equally long: the next one begins, the others are
  // done. Each has a line at once, or the bar.
  void BeginPart(const std::string& part, Clock::time_point now = Clock::now());

  // Takes the bar away, so that a line can be printed; the next Update draws it
  // again.
  void Clear();

 private:
  absl::Duration Left(int64_t done, Clock::time_point now) const;
  void Show(int64_t done, const std::string& note, Clock::time_point now);

  const std::string what_;
  const int64_t total_;
  const Options options_;
  int64_t begun_ = 0;  // parts
  bool drawn_ = false;
  Clock::time_point next_;
};

// Where it stands.
struct ProgressState {
  std::string what;
  int64_t done = 0;
  int64_t total = 0;
  ProgressUnit unit = ProgressUnit::kParts;
  absl::Duration left;  // 0: nobody knows
  std::string note;
};

// "epoch 1/1 [=====>    ]  52% 488/938, about 40 s left, loss 0.41".
std::string ProgressBar(const ProgressState& state);
// "epoch 1/1: 52% (488/938), about 40 s left: loss 0.41".
std::string ProgressLine(const ProgressState& state);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_PROGRESS_H_
