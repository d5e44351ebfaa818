// HMAC-SHA256 (RFC 2104, FIPS 198-1): a message authentication code; and random
// bytes for its keys and nonces.

#ifndef TANDEM_CORE_DIGEST_HMAC_SHA256_H_
#define TANDEM_CORE_DIGEST_HMAC_SHA256_H_

#include <cstddef>
#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/digest/sha256.h"

namespace tandem {

constexpr size_t kCodeBytes = 32;  // of each code

// Codes under one key. What SHA-256 does depends on the length of the key and
// of the message alone, so the time that a code takes tells nothing else of
// them.
//
// Thread-compatible.
class HmacSha256 {
 public:
  explicit HmacSha256(absl::string_view key);

  // The code of the pieces, one after the other: kCodeBytes. Where they are cut
  // does not matter, so all but one should have a fixed length.
  std::string Of(std::initializer_list<absl::string_view> pieces) const;

 private:
  Sha256 inner_;  // with the key in it
  Sha256 outer_;
};

// Whether two codes are the same, in a time that depends on their lengths
// alone.
bool SameCode(absl::string_view a, absl::string_view b);

// Random bytes that nobody can guess, from the kernel: for nonces and secrets.
// What training draws comes from core/random. Requires count <= 256: as many
// come in one piece. Thread-safe.
absl::StatusOr<std::string> RandomBytes(size_t count);

}  // namespace tandem

#endif  // TANDEM_CORE_DIGEST_HMAC_SHA256_H_
