#include "core/instrument/clock_offset.h"

#include <glog/logging.h>

#include <algorithm>

namespace tandem {

ClockOffset EstimateClockOffset(absl::Span<const ClockSample> samples) {
  CHECK(!samples.empty());
  const ClockSample& best =
      *std::min_element(samples.begin(), samples.end(),
                        [](const ClockSample& a, const ClockSample& b) {
                          return a.received - a.sent < b.received - b.sent;
                        });
  const auto half = (best.received - best.sent) / 2;
  return {best.answered - (best.sent + half), half};
}

}  // namespace tandem
