// Short names of dtypes, as the safetensors format has them: "F32", "I64", ...

#ifndef TANDEM_CORE_BASE_DTYPE_NAMES_H_
#define TANDEM_CORE_BASE_DTYPE_NAMES_H_

#include <c10/core/ScalarType.h>

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace tandem {

// The name of `dtype`; empty for one that the format has no name for (quantised
// types and the like).
absl::string_view DtypeName(c10::ScalarType dtype);

// The dtype of that name, or nothing.
absl::optional<c10::ScalarType> DtypeOfName(absl::string_view name);

// The bits of an element of one of the format's other dtypes ("F4", "F8_E8M0",
// ...), whose tensors nothing here computes with. 0: no such name.
int BitsOfUnreadDtype(absl::string_view name);

// "BOOL, U8, ...": all names that are read, for messages.
std::string KnownDtypeNames();

// What flags call dtypes, of what PyTorch calls them and the reverse: "fp32" of
// "float32", "bf16", "fp16" and "fp64". Any other text as it is.
std::string ShortDtypeName(absl::string_view name);
std::string LongDtypeName(absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_DTYPE_NAMES_H_
