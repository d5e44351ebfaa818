// CRC-32, gzip's (RFC 1952; zlib.crc32 in Python).

#ifndef TANDEM_CORE_DIGEST_CRC32_H_
#define TANDEM_CORE_DIGEST_CRC32_H_

#include <cstddef>
#include <cstdint>

namespace tandem {

// The checksum of the bytes that `crc` is the checksum of (0: of none),
// followed by `data`.
uint32_t Crc32(uint32_t crc, const void* data, size_t size);

// The checksum of the bytes that `first` is the checksum of, followed by the
// `bytes` bytes that `second` is the checksum of.
uint32_t CombineCrc32(uint32_t first, uint32_t second, uint64_t bytes);

// Pieces of this size stay in the cache between their checksum and what else
// reads them: a copy, a write.
constexpr uint64_t kCrc32PieceBytes = uint64_t{1} << 18;

}  // namespace tandem

#endif  // TANDEM_CORE_DIGEST_CRC32_H_
