#include "core/checkpoint/folder/manifest_tensor.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::Status Bad(const ManifestTensor& tensor, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", tensor.info.name, " ", why));
}

// Elements; -1: more bytes than an int64_t counts.
int64_t ElementCount(const TensorInfo& info) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(info.dtype));
  int64_t elements = 1;
  bool is_empty = false;
  for (const int64_t size : info.sizes) {
    is_empty = is_empty || size == 0;
    const int64_t factor = std::max<int64_t>(size, 1);
    if (__builtin_mul_overflow(bytes, factor, &bytes)) return -1;
    elements *= factor;
  }
  return is_empty ? 0 : elements;
}

// Some order of the dimensions is row-major: no two indices share a place, and
// no place is left out.
bool IsDense(const std::vector<int64_t>& sizes,
             const std::vector<int64_t>& strides) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (const size_t i : order) {
    if (sizes[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

// Checks that a shard lies in the tensor, and that its pieces make it up.
absl::Status CheckPieces(const ManifestTensor& tensor,
                         const ManifestShard& shard) {
  const absl::Status lies = CheckShard(shard.ranges, tensor.info.sizes);
  if (!lies.ok()) return Bad(tensor, absl::StrCat("has ", lies.message()));
  const TensorInfo held = {tensor.info.name, tensor.info.dtype,
                           ShardSizes(shard.ranges)};
  const int64_t elements = ElementCount(held);
  if (shard.strides.size() != held.sizes.size() ||
      (elements > 0 && !IsDense(held.sizes, shard.strides))) {
    return Bad(tensor, "has strides that do not fit its shape");
  }
  if (shard.pieces.empty()) return Bad(tensor, "lies in no file");
  int64_t at = 0;
  for (const ManifestPiece& piece : shard.pieces) {
    if (piece.begin != at || piece.end < piece.begin) {
      return Bad(tensor, absl::StrCat("has a piece of elements ", piece.begin,
                                      " to ", piece.end, " where one from ", at,
                                      " on was expected"));
    }
    at = piece.end;
  }
  if (at == elements) return absl::OkStatus();
  return Bad(tensor,
             absl::StrCat("has ", elements, " elements, its pieces ", at));
}

// The distinct ranges that shards have along one dimension, numbered.
using RangeNumbers = std::map<IndexRanges, size_t>;

bool HaveNoIndexInCommon(const RangeNumbers& numbers) {
  IndexRanges all;
  for (const auto& each : numbers) {
    all.insert(all.end(), each.first.begin(), each.first.end());
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].begin < all[i - 1].end()) return false;
  }
  return true;
}

// Checks that shards are different cells of a grid, and all of them.
absl::Status CheckGrid(const ManifestTensor& tensor) {
  std::vector<std::vector<size_t>> cells(tensor.shards.size());
  for (size_t dim = 0; dim < tensor.info.sizes.size(); ++dim) {
    RangeNumbers numbers;
    for (size_t i = 0; i < cells.size(); ++i) {
      const auto added =
          numbers.emplace(tensor.shards[i].ranges[dim], numbers.size());
      cells[i].push_back(added.first->second);
    }
    if (HaveNoIndexInCommon(numbers)) continue;
    return Bad(tensor,
               absl::StrCat("has shards that overlap, or make no grid, along "
                            "dimension ",
                            dim));
  }
  int64_t elements = 0;
  std::set<std::vector<size_t>> known;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!known.insert(cells[i]).second) {
      return Bad(tensor, absl::StrCat("has two shards of the same elements: ",
                                      FormatShard(tensor.shards[i].ranges)));
    }
    elements += tensor.shards[i].pieces.back().end;
  }
  const int64_t expected = ElementCount(tensor.info);
  if (elements == expected) return absl::OkStatus();
  return Bad(tensor, absl::StrCat("has ", expected, " elements, its shards ",
                                  elements));
}

}  // namespace

bool IsInOneShard(const ManifestTensor& tensor) {
  return tensor.shards.size() == 1 &&
         tensor.shards[0].ranges == WholeShard(tensor.info.sizes);
}

TensorSlice PieceSlice(const ManifestTensor& tensor, const ManifestShard& shard,
                       const ManifestPiece& piece) {
  return {tensor.info.sizes, shard.strides, piece.begin, shard.ranges};
}

absl::Status CheckTensor(const ManifestTensor& tensor) {
  if (ElementCount(tensor.info) < 0) {
    return Bad(tensor, "has more than 2^63 bytes");
  }
  if (tensor.shards.empty()) return Bad(tensor, "lies in no file");
  for (const ManifestShard& each : tensor.shards) {
    TANDEM_RETURN_IF_ERROR(CheckPieces(tensor, each));
  }
  return CheckGrid(tensor);
}

}  // namespace tandem
