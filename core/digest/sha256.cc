#include "core/digest/sha256.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"

namespace tandem {
namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t RotateRight(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

uint32_t LoadBigEndian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 |
         uint32_t{p[3]};
}

// The message schedule W of FIPS 180-4, section 6.2.2, step 1.
void Expand(const uint8_t* block, uint32_t w[64]) {
  for (int t = 0; t < 16; ++t) w[t] = LoadBigEndian(block + 4 * t);
  for (int t = 16; t < 64; ++t) {
    const uint32_t a = w[t - 15];
    const uint32_t b = w[t - 2];
    const uint32_t s0 = RotateRight(a, 7) ^ RotateRight(a, 18) ^ (a >> 3);
    const uint32_t s1 = RotateRight(b, 17) ^ RotateRight(b, 19) ^ (b >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
}

}  // namespace

void Sha256::Compress(const uint8_t* block) {
  uint32_t w[64];
  Expand(block, w);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int t = 0; t < 64; ++t) {
    const uint32_t s1 =
        RotateRight(e, 6) ^ RotateRight(e, 11) ^ RotateRight(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const uint32_t s0 =
        RotateRight(a, 2) ^ RotateRight(a, 13) ^ RotateRight(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += sum[i];
}

void Sha256::Update(const void* data, size_t size) {
  if (size == 0) return;
  const auto* bytes = static_cast<const uint8_t*>(data);
  const size_t held = size_ % kBlockBytes;
  size_ += size;
  if (held > 0) {
    const size_t taken = std::min(size, kBlockBytes - held);
    std::memcpy(block_.data() + held, bytes, taken);
    if (held + taken < kBlockBytes) return;
    Compress(block_.data());
    bytes += taken, size -= taken;
  }
  for (; size >= kBlockBytes; bytes += kBlockBytes, size -= kBlockBytes) {
    Compress(bytes);
  }
  if (size > 0) std::memcpy(block_.data(), bytes, size);
}

// One bit, zeros, and the length in 64 bits to the end of a block.
void Sha256::Pad(uint64_t message_bits) {
  const size_t held = size_ % kBlockBytes;
  const size_t zeros = (held < 56 ? 55 : 119) - held;
  uint8_t padding[kBlockBytes + 8] = {0x80};
  for (int i = 0; i < 8; ++i) {
    padding[1 + zeros + i] = static_cast<uint8_t>(message_bits >> (56 - 8 * i));
  }
  Update(padding, 1 + zeros + 8);
}

Sha256::Digest Sha256::Finish() const {
  Sha256 last = *this;
  last.Pad(size_ * 8);
  Digest digest;
  for (size_t i = 0; i < kDigestBytes; ++i) {
    digest[i] = static_cast<uint8_t>(last.state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

std::string Sha256::HexDigest() const {
  const Digest digest = Finish();
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace tandem
