#include "core/digest/hmac_sha256.h"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>

#include "absl/status/status.h"

namespace tandem {
namespace {

constexpr size_t kBlockBytes = 64;

std::string Text(const Sha256::Digest& digest) {
  return std::string(digest.begin(), digest.end());
}

std::string KeyBlock(absl::string_view key) {
  std::string block(key);
  if (block.size() > kBlockBytes) {
    Sha256 hash;
    hash.Update(key);
    block = Text(hash.Finish());
  }
  block.resize(kBlockBytes, '\0');
  return block;
}

void UpdateWithPad(std::string block, char pad, Sha256* hash) {
  for (char& byte : block) byte = static_cast<char>(byte ^ pad);
  hash->Update(block);
}

}  // namespace

HmacSha256::HmacSha256(absl::string_view key) {
  const std::string block = KeyBlock(key);
  UpdateWithPad(block, 0x36, &inner_);
  UpdateWithPad(block, 0x5c, &outer_);
}

std::string HmacSha256::Of(
    std::initializer_list<absl::string_view> pieces) const {
  Sha256 inner = inner_;
  for (const absl::string_view piece : pieces) inner.Update(piece);
  Sha256 outer = outer_;
  outer.Update(Text(inner.Finish()));
  return Text(outer.Finish());
}

bool SameCode(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (getrandom(&bytes[0], count, 0) != static_cast<ssize_t>(count)) {
    return absl::ErrnoToStatus(errno, "getrandom");
  }
  return bytes;
}

}  // namespace tandem
