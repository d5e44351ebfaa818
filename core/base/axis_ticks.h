// Axis ticks: round values for the axis of a drawing.

#ifndef TANDEM_CORE_BASE_AXIS_TICKS_H_
#define TANDEM_CORE_BASE_AXIS_TICKS_H_

#include <vector>

namespace tandem {

// 0 and its multiples up to `most` of 1, 2 or 5 times a power of ten, chosen so
// that there are at most ten behind 0. {0} where `most` is not above 0.
std::vector<double> AxisTicks(double most);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_AXIS_TICKS_H_
