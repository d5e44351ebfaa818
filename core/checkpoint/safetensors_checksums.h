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

#ifndef TANDEM_CORE_CHECKPOINT_SAFETENSORS_CHECKSUMS_H_
#define TANDEM_CORE_CHECKPOINT_SAFETENSORS_CHECKSUMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/safetensors_header.h"

namespace tandem {

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

#endif  // TANDEM_CORE_CHECKPOINT_SAFETENSORS_CHECKSUMS_H_
