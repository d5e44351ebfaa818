#include "core/tensorboard/record.h"

#include <cstdint>

#include "leveldb/util/crc32c.h"

namespace tandem {
namespace {

template <typename T>
std::string LittleEndian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>(value >> 8 * i & 0xFF));
  }
  return bytes;
}

std::string MaskedCrc(absl::string_view data) {
  namespace crc32c = leveldb::crc32c;
  return LittleEndian(crc32c::Mask(crc32c::Value(data.data(), data.size())));
}

}  // namespace

void AppendRecord(absl::string_view data, std::string* records) {
  const std::string length = LittleEndian(uint64_t{data.size()});
  records->append(length);
  records->append(MaskedCrc(length));
  records->append(data.data(), data.size());
  records->append(MaskedCrc(data));
}

}  // namespace tandem
