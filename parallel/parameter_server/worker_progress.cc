#include "parallel/parameter_server/worker_progress.h"

#include <glog/logging.h>

#include <algorithm>

namespace tandem {

WorkerProgress::WorkerProgress(int workers, int64_t max_staleness)
    : max_staleness_(max_staleness),
      pushed_(static_cast<size_t>(workers), 0),
      lives_(static_cast<size_t>(workers), true) {
  CHECK_GE(workers, 1);
  CHECK_GE(max_staleness, kUnboundedStaleness);
}

WorkerProgress::Push WorkerProgress::Classify(int worker, int64_t step) const {
  const int64_t done = pushed(worker);
  if (step <= done) return Push::kDuplicate;
  return step == done + 1 ? Push::kNext : Push::kGap;
}

void WorkerProgress::ResumeAt(int64_t steps) {
  std::fill(pushed_.begin(), pushed_.end(), steps);
}

bool WorkerProgress::MayGoOn(int worker) const {
  if (max_staleness_ == kUnboundedStaleness) return true;
  return pushed(worker) - slowest() <= max_staleness_;
}

int WorkerProgress::living() const {
  return static_cast<int>(std::count(lives_.begin(), lives_.end(), true));
}

int64_t WorkerProgress::fastest() const {
  return *std::max_element(pushed_.begin(), pushed_.end());
}

int64_t WorkerProgress::slowest() const {
  int64_t slowest = -1;
  for (int w = 0; w < workers(); ++w) {
    if (!lives(w)) continue;
    slowest = slowest < 0 ? pushed(w) : std::min(slowest, pushed(w));
  }
  return slowest;
}

}  // namespace tandem
