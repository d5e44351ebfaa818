// Text check: what is no text, by its first bytes.

#ifndef TANDEM_TOOLS_TEXTS_TEXT_CHECK_H_
#define TANDEM_TOOLS_TEXTS_TEXT_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// InvalidArgument, which says what the file `path` is and what to do, for one
// that begins as compressed files do (gzip, zstd, xz, bzip2, zip, LZ4, 7z), as
// Parquet, or in UTF-16, and for one with a byte 0 among these first ones: it
// would be trained on as it is.
absl::Status CheckIsText(const std::string& path, absl::string_view beginning);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_TEXT_CHECK_H_
