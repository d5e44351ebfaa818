// Storage view: which elements of a storage a tensor has.

#ifndef TANDEM_CORE_PYTORCH_FILE_STORAGE_VIEW_H_
#define TANDEM_CORE_PYTORCH_FILE_STORAGE_VIEW_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// All of them 0 or more; counted in elements.
struct StorageView {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  int64_t storage_size = 0;
};

// InvalidArgument, with the numbers, unless there are as many strides as sizes,
// every element lies within the storage, and there are no more of them than the
// storage has. Of an empty view: unless LibTorch can count its sizes. No sum or
// product overflows, whatever the numbers.
absl::Status CheckView(const StorageView& view);

bool IsEmpty(const StorageView& view);

// Elements from the first to the last one. Requires one that is not empty and
// was checked.
int64_t SpanOf(const StorageView& view);

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_STORAGE_VIEW_H_
