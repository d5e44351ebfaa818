// SHA-256 (FIPS 180-4).

#ifndef TANDEM_CORE_DIGEST_SHA256_H_
#define TANDEM_CORE_DIGEST_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// Hashes what is handed to it piece by piece; where the cuts fall does not
// matter. No table is looked up, and no branch taken, by what is hashed: the
// time depends on the size alone. Copies of what is hashed are not wiped.
//
//   Sha256 hash;
//   hash.Update("ab");
//   hash.Update("c");
//   hash.HexDigest();  // "ba7816bf..."
//
// Thread-compatible.
class Sha256 {
 public:
  static constexpr size_t kDigestBytes = 32;
  using Digest = std::array<uint8_t, kDigestBytes>;

  void Update(const void* data, size_t size);
  void Update(absl::string_view data) { Update(data.data(), data.size()); }

  // The hash of all that came so far. More may follow.
  Digest Finish() const;
  // The same in 64 lower-case hexadecimal digits.
  std::string HexDigest() const;

 private:
  static constexpr size_t kBlockBytes = 64;

  void Compress(const uint8_t* block);
  void Pad(uint64_t message_bits);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                    0xa54ff53a, 0x510e527f, 0x9b05688c,
                                    0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlockBytes> block_ = {};  // what fills no block yet
  uint64_t size_ = 0;                            // bytes so far
};

}  // namespace tandem

#endif  // TANDEM_CORE_DIGEST_SHA256_H_
