// Clock offset: how far another host's steady clock is from this one, by round
// trips of messages (Cristian's algorithm).

#ifndef TANDEM_CORE_INSTRUMENT_CLOCK_OFFSET_H_
#define TANDEM_CORE_INSTRUMENT_CLOCK_OFFSET_H_

#include <chrono>

#include "absl/types/span.h"

namespace tandem {

// One round trip.
struct ClockSample {
  using Clock = std::chrono::steady_clock;

  Clock::time_point sent;      // by this host's clock
  Clock::time_point answered;  // by the other's
  Clock::time_point received;  // by this host's
};

// The other clock shows `offset` more than this one, which may be wrong by as
// much as `uncertainty`.
struct ClockOffset {
  std::chrono::nanoseconds offset{0};
  std::chrono::nanoseconds uncertainty{0};
};

// The offset by the shortest of the round trips, of which there must be one:
// the answer came between its ends, so that its middle is wrong by half its
// length at most. The earliest of equally short ones counts.
ClockOffset EstimateClockOffset(absl::Span<const ClockSample> samples);

}  // namespace tandem

#endif  // TANDEM_CORE_INSTRUMENT_CLOCK_OFFSET_H_
