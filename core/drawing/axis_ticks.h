// Axis ticks: round values for the axes of drawings.

#ifndef TANDEM_CORE_DRAWING_AXIS_TICKS_H_
#define TANDEM_CORE_DRAWING_AXIS_TICKS_H_

#include <vector>

namespace tandem {

// 0 and its multiples up to `most` of 1, 2 or 5 times a power of ten, chosen so
// that there are at most ten behind 0. {0} where `most` is not above 0.
std::vector<double> AxisTicks(double most);

// Multiples of 1, 2 or 5 times a power of ten from `least` to `most`, at most
// `count` of them, which is at least 2. Requires finite values, below 1e300 in
// magnitude; none where `most` is not above `least`, or so little that doubles
// cannot tell such multiples apart.
std::vector<double> AxisTicks(double least, double most, int count);

// The same of a logarithmic axis: powers of ten, with 2 and 5 times them where
// there is room for all, or as few of the powers as there is room for. Requires
// 0 < least.
std::vector<double> LogarithmicTicks(double least, double most, int count);

}  // namespace tandem

#endif  // TANDEM_CORE_DRAWING_AXIS_TICKS_H_
