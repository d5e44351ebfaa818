// Header of a safetensors file: which tensors there are, and where.
//
// A file is: u64 little-endian length N of the header; N bytes of JSON,
//   {"__metadata__": {KEY: VALUE, ...},
//    NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]},
//    ...}
// perhaps padded with white space; then the data, to which the offsets are
// relative. Instead of the metadata's object there may be a null.
// Source: https://github.com/huggingface/safetensors, README, "Format", and
// what its version 0.8 reads.

#ifndef TANDEM_CORE_CHECKPOINT_SAFETENSORS_HEADER_H_
#define TANDEM_CORE_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// The greatest length of a header that the format allows, in bytes.
constexpr uint64_t kMaxSafetensorsHeaderBytes = 100000000;

// One tensor: row-major, little-endian, at [begin, end) of the data.
struct SafetensorsEntry {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0;
  uint64_t end = 0;
  // "F8_E8M0", "F4": the name of one of the format's dtypes that is not read;
  // then `dtype` is Undefined. Else empty.
  std::string unread_dtype = {};

  uint64_t bytes() const { return end - begin; }
  // The dtype's name in the file.
  std::string DtypeText() const;
};

// Free text that goes with the tensors. UTF-8.
using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the data
  SafetensorsMetadata metadata;
};

// Reads a header whose data is `data_bytes` long. Trusts nothing: an error
// (InvalidArgument) for JSON that is no such header, a name that comes twice,
// an unknown dtype, offsets that do not fit the shape, overlap, leave a hole or
// leave the file.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t data_bytes);

// Whether a header can have `text` as a name as it is: UTF-8.
bool CanStandInHeader(const std::string& text);

// The JSON, padded with spaces so that data after it and the length before it
// begins on an 8-byte boundary of the file.
std::string FormatSafetensorsHeader(const SafetensorsHeader& header);

// Checksums of a safetensors file: a CRC-32 for each tensor, one for the rest.
//
// They stand in the metadata, so that other tools read the file as any other:
//   "tandem.crc32.tensors": eight hexadecimal digits for each tensor, in the
//     order of the data: of its bytes in the file;
//   "tandem.crc32.header": eight digits: of what the header says (names,
//     dtypes, shapes, offsets, all other metadata), however it is written.
// CRC-32: core/digest/crc32.h.
//
// They find accidents: a flipped bit, a block that was zeroed, moved or lost, a
// number edited by hand. They are no protection against somebody who wants the
// change to stay unseen.

// Adds both keys. The length of the formatted header does not depend on the
// values. Requires a checksum for each entry.
void AddChecksums(const std::vector<uint32_t>& of_tensors,
                  SafetensorsHeader* header);

// Takes both keys out of `header` and gives the tensors' checksums, by entry;
// nothing where there are none. DataLoss, with the keys taken all the same, for
// a header that is not what it was.
absl::StatusOr<std::optional<std::vector<uint32_t>>> TakeChecksums(
    SafetensorsHeader* header);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_SAFETENSORS_HEADER_H_
