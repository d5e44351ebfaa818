// What a manifest may say of a tensor.

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/folder/manifest.h"

namespace tandem {
namespace {

absl::Status Bad(const ManifestTensor& tensor, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", tensor.info.name, " ", why));
}

// Elements; -1: more bytes than an int64_t counts.
int64_t ElementsOf(const TensorInfo& info) {
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
bool IsDense(const ManifestTensor& tensor) {
  const std::vector<int64_t>& sizes = tensor.info.sizes;
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensor.strides[a] < tensor.strides[b];
  });
  int64_t expected = 1;
  for (const size_t i : order) {
    if (sizes[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    expected *= sizes[i];
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

absl::Status CheckTensor(const ManifestTensor& tensor) {
  const int64_t elements = ElementsOf(tensor.info);
  if (elements < 0) return Bad(tensor, "has more than 2^63 bytes");
  if (tensor.strides.size() != tensor.info.sizes.size() ||
      (elements > 0 && !IsDense(tensor))) {
    return Bad(tensor, "has strides that do not fit its shape");
  }
  if (tensor.pieces.empty()) return Bad(tensor, "lies in no file");
  int64_t at = 0;
  for (const ManifestPiece& piece : tensor.pieces) {
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

}  // namespace tandem
