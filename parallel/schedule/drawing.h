// Pictures of a schedule: for a terminal, a page, and a trace viewer.

#ifndef TANDEM_PARALLEL_SCHEDULE_DRAWING_H_
#define TANDEM_PARALLEL_SCHEDULE_DRAWING_H_

#include <string>
#include <vector>

#include "parallel/schedule/simulation.h"

namespace tandem {

// Axis ticks: round values for the axis of a drawing.

// 0 and its multiples up to `most` of 1, 2 or 5 times a power of ten, chosen so
// that there are at most ten behind 0. {0} where `most` is not above 0.
std::vector<double> AxisTicks(double most);

// A line for each device, its time from left to right in at most `columns`
// characters; actions carry their letters and microbatches as far as there is
// room, dots are idle time. Below them the axis of time, and what the letters
// mean.
std::string DrawText(const SchedulePrediction& prediction, int columns = 100);

// The same as a stand-alone SVG image, with its bubble beside the title;
// colours are told apart by lightness as well.
std::string DrawSvg(const std::string& title,
                    const SchedulePrediction& prediction);

// Chrome's trace format (Perfetto reads it): a thread for each device; a unit
// of time is a millisecond.
std::string DrawTrace(const SchedulePrediction& prediction);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_DRAWING_H_
