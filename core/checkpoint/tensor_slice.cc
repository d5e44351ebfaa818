#include "core/checkpoint/tensor_slice.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tandem {
namespace {

int64_t ElementsOf(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1},
                         std::multiplies<int64_t>());
}

std::vector<size_t> SlowestFirst(const std::vector<int64_t>& strides) {
  std::vector<size_t> dims(strides.size());
  std::iota(dims.begin(), dims.end(), 0);
  std::stable_sort(dims.begin(), dims.end(),
                   [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  return dims;
}

// A dense tensor, whose runs of elements are boxes of indices: at most two a
// dimension, and one.
class DenseTensor {
 public:
  DenseTensor(const std::vector<int64_t>& sizes,
              const std::vector<int64_t>& strides)
      : whole_(WholeShard(sizes)), dims_(SlowestFirst(strides)) {
    inner_.assign(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) {
      inner_[i - 1] = inner_[i] * sizes[dims_[i]];
    }
  }

  // In the order of memory, in which they follow each other.
  std::vector<TensorShard> Boxes(const IndexRange& run) const {
    std::vector<TensorShard> boxes;
    if (run.length > 0) AddBoxes(0, run, whole_, &boxes);
    return boxes;
  }

 private:
  // `run` is within one index of each of the slower dimensions, which `box`
  // has.
  void AddBoxes(size_t level, const IndexRange& run, TensorShard box,
                std::vector<TensorShard>* boxes) const {
    if (level == dims_.size()) {
      boxes->push_back(std::move(box));
      return;
    }
    const int64_t inner = inner_[level];
    IndexRange& index = box[dims_[level]][0];
    int64_t at = run.begin;
    if (at % inner != 0) {
      const int64_t end = std::min(run.end(), (at / inner + 1) * inner);
      index = {at / inner, 1};
      AddBoxes(level + 1, {at % inner, end - at}, box, boxes);
      at = end;
    }
    const int64_t all = (run.end() - at) / inner;
    if (all > 0) {
      index = {at / inner, all};
      boxes->push_back(box);
      at += all * inner;
    }
    if (at == run.end()) return;
    index = {at / inner, 1};
    AddBoxes(level + 1, {0, run.end() - at}, std::move(box), boxes);
  }

  const TensorShard whole_;
  const std::vector<size_t> dims_;  // the slowest first
  std::vector<int64_t> inner_;  // elements of one index, by place in `dims_`
};

bool ParseNumbers(absl::string_view text, std::vector<int64_t>* numbers) {
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &numbers->emplace_back())) return false;
  }
  return true;
}

}  // namespace

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    // What does not fit is refused before it is used.
    if (__builtin_mul_overflow(strides[i], std::max<int64_t>(sizes[i], 1),
                               &strides[i - 1])) {
      strides[i - 1] = 0;
    }
  }
  return strides;
}

TensorShard HeldShard(const TensorSlice& slice) {
  return slice.shard.empty() ? WholeShard(slice.sizes) : slice.shard;
}

TensorSlice SliceOfShard(std::vector<int64_t> sizes, TensorShard shard) {
  std::vector<int64_t> strides = RowMajorStrides(ShardSizes(shard));
  return {std::move(sizes), std::move(strides), 0, std::move(shard)};
}

IndexRange CommonRun(const TensorSlice& slice, int64_t elements,
                     const TensorShard& wanted) {
  const TensorShard held = HeldShard(slice);
  int64_t first = 0;
  int64_t last = 0;
  for (size_t dim = 0; dim < held.size(); ++dim) {
    const std::vector<CommonRange> common =
        CommonRanges(held[dim], wanted[dim]);
    if (common.empty()) return {slice.begin, 0};
    const int64_t stride = slice.strides[dim];
    first += common.front().in_first * stride;
    last += (common.back().in_first + common.back().length - 1) * stride;
  }
  first = std::max(first, slice.begin);
  last = std::min(last, slice.begin + elements - 1);
  return {first, std::max<int64_t>(0, last + 1 - first)};
}

void CopySlice(const TensorSlice& slice, const at::Tensor& values,
               const TensorShard& wanted, const at::Tensor& target) {
  const TensorShard held = HeldShard(slice);
  const at::Tensor run = values.detach().contiguous();
  const DenseTensor holders(ShardSizes(held), slice.strides);
  int64_t at = run.storage_offset();
  for (const TensorShard& box : holders.Boxes({slice.begin, run.numel()})) {
    const std::vector<int64_t> sizes = ShardSizes(box);
    CopyCommon(run.as_strided(sizes, slice.strides, at),
               ShardOfShard(held, box), target, wanted);
    at += ElementsOf(sizes);
  }
}

std::string FormatSlice(const TensorSlice& slice) {
  return absl::StrCat(slice.begin, ";", absl::StrJoin(slice.sizes, ","), ";",
                      absl::StrJoin(slice.strides, ","));
}

bool ParseSlice(absl::string_view text, TensorSlice* slice) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  return parts.size() == 3 && absl::SimpleAtoi(parts[0], &slice->begin) &&
         ParseNumbers(parts[1], &slice->sizes) &&
         ParseNumbers(parts[2], &slice->strides);
}

}  // namespace tandem
