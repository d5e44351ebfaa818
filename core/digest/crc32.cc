#include "core/digest/crc32.h"

#include <libdeflate.h>
#include <zlib.h>

namespace tandem {

uint32_t Crc32(uint32_t crc, const void* data, size_t size) {
  // A null pointer asks for the first value.
  return data == nullptr ? crc : libdeflate_crc32(crc, data, size);
}

uint32_t CombineCrc32(uint32_t first, uint32_t second, uint64_t bytes) {
  return static_cast<uint32_t>(
      crc32_combine(first, second, static_cast<z_off_t>(bytes)));
}

}  // namespace tandem
