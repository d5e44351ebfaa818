#include "core/fused/row_blocks.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace tandem {
namespace {

// What is worth a thread of its own.
constexpr int64_t kElementsOfABlock = 16384;

int64_t RowsOfABlock(const RowShape& shape) {
  return std::max<int64_t>(
      1, kElementsOfABlock / std::max<int64_t>(1, shape.columns));
}

void AddTo(float* sum, const float* other, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += other[i];
}

// Into the first of them.
void AddUpInATree(float* blocks, int64_t count, int64_t size) {
  for (int64_t step = 1; step < count; step *= 2) {
    for (int64_t i = 0; i + step < count; i += 2 * step) {
      AddTo(blocks + i * size, blocks + (i + step) * size, size);
    }
  }
}

}  // namespace

RowShape AsRows(const at::Tensor& x) {
  const int64_t columns = x.size(-1);
  return {columns == 0 ? 0 : x.numel() / columns, columns};
}

void ForRowBlocks(const RowShape& shape,
                  const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(0, shape.rows, RowsOfABlock(shape), body);
}

at::Tensor SumOverRowBlocks(
    const RowShape& shape, int64_t kinds,
    const std::function<void(int64_t, int64_t, float*)>& body) {
  const int64_t a_block = RowsOfABlock(shape);
  const int64_t count =
      std::max<int64_t>(1, (shape.rows + a_block - 1) / a_block);
  const int64_t size = kinds * shape.columns;
  const at::Tensor sums = at::zeros({count, kinds, shape.columns}, at::kFloat);
  auto* all = sums.mutable_data_ptr<float>();
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      body(block * a_block, std::min(shape.rows, (block + 1) * a_block),
           all + block * size);
    }
  });
  AddUpInATree(all, count, size);
  return sums[0];
}

}  // namespace tandem
