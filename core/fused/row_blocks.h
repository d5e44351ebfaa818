// Rows in blocks: how the loops of this folder divide their work among threads,
// and sum over rows in one order whatever the number of threads.

#ifndef TANDEM_CORE_FUSED_ROW_BLOCKS_H_
#define TANDEM_CORE_FUSED_ROW_BLOCKS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace tandem {

// The shape of a tensor [..., columns] that is seen as a matrix.
struct RowShape {
  int64_t rows;
  int64_t columns;
};
RowShape AsRows(const at::Tensor& x);

// Calls body(begin, end) for parts of [0, rows), on LibTorch's threads.
void ForRowBlocks(const RowShape& shape,
                  const std::function<void(int64_t begin, int64_t end)>& body);

// The same where body adds up `columns` numbers over its rows, in `sums`, which
// are zero before: [columns] of the given number of kinds, of all rows, float.
// Blocks are cut by the shape alone and their sums added in a binary tree, so
// that bits do not depend on threads.
at::Tensor SumOverRowBlocks(
    const RowShape& shape, int64_t kinds,
    const std::function<void(int64_t begin, int64_t end, float* sums)>& body);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_ROW_BLOCKS_H_
