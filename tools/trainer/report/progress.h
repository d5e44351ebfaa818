// Shows how far a long job has come, on stderr.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_PROGRESS_H_
#define TANDEM_TOOLS_TRAINER_REPORT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace tandem {

// On a terminal, a bar that is redrawn at most ten times a second; elsewhere
// one plain line every few seconds, as a log wants it. Not thread-safe.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `what` names the unit of work: "epoch 1/3". `out` outlives this.
  Progress(std::string what, int64_t total, std::FILE* out, bool terminal);
  // Takes the bar off the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total` are done; `note` is shown behind the bar.
  void Update(int64_t done, const std::string& note, Clock::time_point now);

  // Takes the bar away, so that a line can be printed; the next Update draws
  // it again.
  void Clear();

 private:
  std::string what_;
  int64_t total_;
  std::FILE* out_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point next_;
};

// The bar itself: "epoch 1/1 [=====>    ]  52% 488/938 loss 0.41".
std::string ProgressBar(const std::string& what, int64_t done, int64_t total,
                        const std::string& note);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_PROGRESS_H_
