// Agreement to stop: the step, or the batch of an evaluation, after which all
// ranks end, because one of them was sent a signal.

#ifndef TANDEM_TOOLS_TRAINER_STOP_AGREEMENT_H_
#define TANDEM_TOOLS_TRAINER_STOP_AGREEMENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"

namespace tandem {

// A signal reaches ranks at different times, or one of them alone, and a
// checkpoint takes all of them at the same step. So they ask each other, after
// steps that all know beforehand: the first, and from there on as many steps
// later as took a quarter of a second, by what all measured together. Between
// those steps it costs nothing.
//
// Not thread-safe.
class StopAgreement {
 public:
  // `group`: the ranks that do the same steps; must outlive this. `when`: what
  // stands before a step's number where a rank waits here for another one:
  // "after the update of step ". `asks`: what else a rank may have the others
  // stop for; null: nothing.
  StopAgreement(Communicator* group, std::string when,
                std::function<bool()> asks = nullptr)
      : group_(group),
        when_(std::move(when)),
        asks_(std::move(asks)),
        last_time_(Clock::now()) {}

  // After each step, with its number (0: before the first one): the signal
  // (core/program/interrupt.h) that a rank has been sent, the same on all of
  // them, which from then on is each one's; 0: none, as far as is known.
  // Collective.
  absl::StatusOr<int> SignalAfter(int64_t step);
  // Whether, after that step, any rank's `asks` said yes: the same on all.
  bool asked() const { return asked_; }

 private:
  using Clock = std::chrono::steady_clock;

  Communicator* const group_;
  const std::string when_;
  const std::function<bool()> asks_;
  bool asked_ = false;
  int64_t last_step_ = -1;  // that was asked about; -1: none yet
  int64_t next_step_ = -1;
  Clock::time_point last_time_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_STOP_AGREEMENT_H_
