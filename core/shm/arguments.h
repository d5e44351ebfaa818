// Arguments of c10d's operations, checked, as plain arrays. What does not hold
// is thrown, as c10d's backends do.

#ifndef TANDEM_CORE_SHM_ARGUMENTS_H_
#define TANDEM_CORE_SHM_ARGUMENTS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/shm/collectives.h"

namespace tandem {

// For operations that c10d declares for several devices' tensors.
template <typename T>
const T& SingleOf(const std::vector<T>& list) {
  TORCH_CHECK(list.size() == 1, "shm takes one tensor a collective, not ",
              list.size());
  return list[0];
}

// Of a dense contiguous tensor on the CPU.
ConstBytes InputBytes(const at::Tensor& tensor);
MutableBytes OutputBytes(const at::Tensor& tensor);

// One tensor for each of `count` ranks, by one of the two above.
template <typename Bytes>
std::vector<Bytes> BytesOfEach(const std::vector<at::Tensor>& tensors,
                               size_t count, Bytes (*of)(const at::Tensor&)) {
  TORCH_CHECK(tensors.size() == count, "a tensor for each of ", count,
              " ranks is needed, not ", tensors.size());
  std::vector<Bytes> all;
  for (const at::Tensor& tensor : tensors) all.push_back(of(tensor));
  return all;
}

void CheckDtypes(c10::ScalarType one, c10::ScalarType other);

// That all have the size of `like`, and its dtype: nothing is converted.
template <typename Bytes, typename Like>
void CheckAlike(const std::vector<Bytes>& each, const Like& like) {
  for (const Bytes& one : each) {
    CheckDtypes(one.dtype, like.dtype);
    TORCH_CHECK(one.size == like.size, "tensors differ in size: ", one.size,
                " and ", like.size, " bytes");
  }
}

// None negative, and `rows` in all.
void CheckSplits(const std::vector<int64_t>& splits, int64_t rows);

template <typename Inputs, typename Outputs>
void CheckOneDtype(const Inputs& inputs, const Outputs& outputs) {
  for (const auto& each : inputs) CheckDtypes(each.dtype, inputs[0].dtype);
  for (const auto& each : outputs) CheckDtypes(each.dtype, inputs[0].dtype);
}

// Cuts a tensor in equal parts, or in splits of rows, which must add up to it.
template <typename Bytes>
std::vector<Bytes> CutBytes(const Bytes& whole, size_t count,
                            const std::vector<int64_t>& splits = {},
                            int64_t rows = 0) {
  TORCH_CHECK(!splits.empty() || whole.size % count == 0,
              "cannot be divided among ", count, " ranks");
  TORCH_CHECK(splits.empty() || splits.size() == count,
              "one split for each of ", count, " ranks is needed");
  if (!splits.empty()) CheckSplits(splits, rows);
  std::vector<Bytes> parts;
  size_t begin = 0;
  for (size_t r = 0; r < count; ++r) {
    const size_t bytes = splits.empty() ? whole.size / count
                         : rows == 0    ? 0
                                        : whole.size / rows * splits[r];
    parts.push_back({whole.data + begin, bytes, whole.dtype});
    begin += bytes;
  }
  return parts;
}

// How many rows splits divide.
int64_t RowsOf(const at::Tensor& tensor);

// In 0 .. size - 1; `what` is for the message.
int CheckIndex(const char* what, int64_t index, size_t size);
inline int CheckRank(int64_t rank, int size) {
  return CheckIndex("rank", rank, size);
}

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_ARGUMENTS_H_
