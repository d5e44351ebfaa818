// Columns made orthonormal.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_ORTHOGONALIZE_H_
#define TANDEM_PARALLEL_COMM_HOOKS_ORTHOGONALIZE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// In place: the columns of `matrix` ([n, k] with k <= n, floating point) become
// an orthonormal basis of what they span, by Gram-Schmidt, each column
// projected twice ("twice is enough": Giraud, Langou, Rozloznik, 2005), in
// double. A column that depends on those before it becomes zero. A column with
// a NaN makes itself and those after it NaN.
//
// With `epsilon` > 0 a column becomes shorter than one: it is what was left of
// it, divided by the norm of that plus epsilon, so that what is small against
// epsilon stays small. (orthogonalization_epsilon of PyTorch's PowerSGD. There
// the shorter columns are projected with, which leaves them a little short of
// orthogonal; here only the result is shortened.)
//
// Returns for each column whether it became zero: [k], bool, where the matrix
// is. The result depends on the values alone: on one kind of device ranks with
// the same matrix get the same bits. The host waits for no device.
at::Tensor Orthogonalize(const at::Tensor& matrix, double epsilon);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_ORTHOGONALIZE_H_
