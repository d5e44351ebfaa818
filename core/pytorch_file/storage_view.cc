#include "core/pytorch_file/storage_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// Of sizes but those of 0, in an empty view.
constexpr int64_t kMostEmpty = int64_t{1} << 31;

// Whether sizes but those of 0 come to `most` elements at most.
bool CountIsWithin(const std::vector<int64_t>& sizes, int64_t most) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size == 0) continue;
    if (size > most / elements) return false;
    elements *= size;
  }
  return true;
}

bool LastIsWithin(const StorageView& view) {
  if (view.offset >= view.storage_size) return false;
  int64_t left = view.storage_size - 1 - view.offset;  // behind the first one
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t steps = view.sizes[i] - 1;
    if (steps == 0) continue;
    if (view.strides[i] > left / steps) return false;
    left -= steps * view.strides[i];
  }
  return true;
}

absl::Status Bad(const char* why, const StorageView& view) {
  return absl::InvalidArgumentError(absl::StrCat(
      why, ": sizes [", absl::StrJoin(view.sizes, ", "), "], strides [",
      absl::StrJoin(view.strides, ", "), "], offset ", view.offset,
      " in a storage of ", view.storage_size, " elements"));
}

}  // namespace

bool IsEmpty(const StorageView& view) {
  return std::count(view.sizes.begin(), view.sizes.end(), 0) > 0;
}

absl::Status CheckView(const StorageView& view) {
  if (view.strides.size() != view.sizes.size()) {
    return Bad("has not as many strides as sizes", view);
  }
  if (IsEmpty(view)) {
    return CountIsWithin(view.sizes, kMostEmpty)
               ? absl::OkStatus()
               : Bad("is empty, of sizes beyond 2^31", view);
  }
  if (!LastIsWithin(view)) return Bad("leaves its storage", view);
  if (CountIsWithin(view.sizes, view.storage_size)) return absl::OkStatus();
  return Bad("has more elements than its storage (save it contiguous)", view);
}

int64_t SpanOf(const StorageView& view) {
  int64_t span = 1;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    span += (view.sizes[i] - 1) * view.strides[i];
  }
  return span;
}

}  // namespace tandem
