#include "tools/trainer/stop_agreement.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/program/interrupt.h"

namespace tandem {
namespace {

// How long a signal may go unnoticed: short beside the seconds that ranks have
// to end, and thousands of times what it costs to ask.
constexpr double kSeconds = 0.25;

// If ranks were sent different signals, the first of these counts.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
constexpr int kCount = static_cast<int>(std::size(kSignals));

}  // namespace

absl::StatusOr<int> StopAgreement::SignalAfter(int64_t step) {
  asked_ = false;
  if (step < next_step_) return 0;
  const Clock::time_point now = Clock::now();
  const double steps =
      last_step_ < 0 ? 1 : static_cast<double>(step - last_step_);
  // How many ranks were sent each signal, seconds of a step on each, and how
  // many ask for something else.
  at::Tensor told = at::zeros({kCount + 2}, at::kDouble);
  double* const values = told.mutable_data_ptr<double>();
  for (int i = 0; i < kCount; ++i) {
    values[i] = InterruptSignal() == kSignals[i] ? 1 : 0;
  }
  values[kCount] =
      std::chrono::duration<double>(now - last_time_).count() / steps;
  values[kCount + 1] = asks_ && asks_() ? 1 : 0;
  TANDEM_RETURN_IF_ERROR(group_->AllReduceSum(told, [this, step] {
    return absl::StrCat("whether a signal came (", when_, step, ")");
  }));
  const double step_seconds = values[kCount] / group_->size();
  asked_ = values[kCount + 1] > 0;
  last_step_ = step;
  last_time_ = now;
  // Before the first step nothing is measured yet.
  const double ahead = step == 0 ? 1 : kSeconds / std::max(step_seconds, 1e-6);
  next_step_ = step + std::max<int64_t>(1, static_cast<int64_t>(ahead));
  for (int i = 0; i < kCount; ++i) {
    if (values[i] == 0) continue;
    AdoptInterrupt(kSignals[i]);
    return kSignals[i];
  }
  return 0;
}

}  // namespace tandem
