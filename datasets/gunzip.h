// Whole files, gzipped or not.

#ifndef TANDEM_DATASETS_GUNZIP_H_
#define TANDEM_DATASETS_GUNZIP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// The content of a file, unpacked if it begins as gzip files do (RFC 1952; it
// may have several members). `max_bytes` bounds what is held, packed and
// unpacked: a small file can unpack to a thousand times its size.
//
// Errors name the file: missing (NotFound), longer than `max_bytes`
// (ResourceExhausted), truncated, damaged or with bytes behind the packed data
// (DataLoss).
absl::StatusOr<std::string> ReadFileGunzip(const std::string& path,
                                           int64_t max_bytes);

}  // namespace tandem

#endif  // TANDEM_DATASETS_GUNZIP_H_
