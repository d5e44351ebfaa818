// Pictures of a schedule: for a terminal, a page, and a trace viewer.

#ifndef TANDEM_PARALLEL_SCHEDULE_DRAWING_H_
#define TANDEM_PARALLEL_SCHEDULE_DRAWING_H_

#include <string>

#include "parallel/schedule/simulation.h"

namespace tandem {

// A line for each device, its time from left to right in at most `columns`
// characters; actions carry their letters and microbatches as far as there is
// room, dots are idle time. Below them the axis of time, and what the letters
// mean.
std::string DrawText(const SchedulePrediction& prediction, int columns = 100);

// The same as a stand-alone SVG image, with its bubble beside the title;
// colours are told apart by lightness as well. A page that has it inside of
// itself can give the colours of its own to what is of class "ground" (behind
// all), "waiting" and "words" (text that stands on the ground).
std::string DrawSvg(const std::string& title,
                    const SchedulePrediction& prediction);

// Chrome's trace format (Perfetto reads it): a thread for each device; a unit
// of time is a millisecond.
std::string DrawTrace(const SchedulePrediction& prediction);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_DRAWING_H_
