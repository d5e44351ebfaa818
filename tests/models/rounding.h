// Rounding errors: how far two processors may be apart. For the tolerances of
// tests that compare with recorded values.
//
// A processor's kernels are its own: the order in which a sum is taken, whether
// a product is rounded before it is added, the last bits of tanh and exp. What
// all of them keep to is the error of each rounding, half a unit in the last
// place, from which a tolerance follows; a difference that was seen on some
// machine says nothing of the next one.

#ifndef TANDEM_TESTS_MODELS_ROUNDING_H_
#define TANDEM_TESTS_MODELS_ROUNDING_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace tandem {

// The distance of numbers in [1, 2): 2^-23 of float, 2^-10 of half.
double UnitAtOne(at::ScalarType dtype);

// The same for numbers of this magnitude, which is positive.
double UnitInLastPlace(at::ScalarType dtype, double magnitude);

// How far apart two results may be that came about by `roundings` roundings
// each, of numbers up to `magnitude`. Errors of independent sign add up like
// steps of a random walk: to four deviations, so one value in 16,000 if every
// rounding had its greatest error, and fewer by orders of magnitude as they
// are.
double RoundingTolerance(at::ScalarType dtype, int roundings, double magnitude);

// How far apart elements of two tensors of one shape are at most.
double LargestDifference(const at::Tensor& a, const at::Tensor& b);

// Are the two of one shape and dtype, and no element further apart than that,
// of the greatest magnitude in `expected`? NaNs are not.
bool IsWithinRoundings(const at::Tensor& actual, const at::Tensor& expected,
                       int roundings);

}  // namespace tandem

#endif  // TANDEM_TESTS_MODELS_ROUNDING_H_
