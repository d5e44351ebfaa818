// Index check: what every data set checks first.

#ifndef TANDEM_DATASETS_CHECK_INDICES_H_
#define TANDEM_DATASETS_CHECK_INDICES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace tandem {

// An error that names the first of `indices` outside [0, size).
inline absl::Status CheckIndices(absl::Span<const int64_t> indices,
                                 int64_t size) {
  for (int64_t index : indices) {
    if (index < 0 || index >= size) {
      return absl::OutOfRangeError(absl::StrCat(
          "sample ", index, " was asked for; the data set has ", size));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem

#endif  // TANDEM_DATASETS_CHECK_INDICES_H_
