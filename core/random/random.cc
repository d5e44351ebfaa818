#include "core/random/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/PhiloxRNGEngine.h>

#include <cstddef>

namespace tandem {
namespace {

uint64_t Join(uint32_t low, uint32_t high) {
  return uint64_t{high} << 32 | low;
}

}  // namespace

// What LibTorch calls offset and subsequence are the counter's halves.
PhiloxBlock Philox(PhiloxBlock counter, PhiloxKey key) {
  at::philox_engine engine(Join(key[0], key[1]), Join(counter[2], counter[3]),
                           Join(counter[0], counter[1]));
  return {engine(), engine(), engine(), engine()};
}

namespace {

uint64_t RotateLeft(uint64_t x, int bits) {
  return (x << bits) | (x >> (64 - bits));
}

// Little-endian, whatever the machine.
uint64_t ReadBytes(absl::string_view bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i]))
            << (8 * i);
  }
  return word;
}

// The four words of the paper's section 2, with its names.
class SipState {
 public:
  SipState(uint64_t key0, uint64_t key1)
      : v0_(key0 ^ 0x736f6d6570736575),
        v1_(key1 ^ 0x646f72616e646f6d),
        v2_(key0 ^ 0x6c7967656e657261),
        v3_(key1 ^ 0x7465646279746573) {}

  void Absorb(uint64_t word) {
    v3_ ^= word;
    Rounds(2);
    v0_ ^= word;
  }

  uint64_t Finish() {
    v2_ ^= 0xff;
    Rounds(4);
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0_ += v1_;
      v1_ = RotateLeft(v1_, 13) ^ v0_;
      v0_ = RotateLeft(v0_, 32);
      v2_ += v3_;
      v3_ = RotateLeft(v3_, 16) ^ v2_;
      v0_ += v3_;
      v3_ = RotateLeft(v3_, 21) ^ v0_;
      v2_ += v1_;
      v1_ = RotateLeft(v1_, 17) ^ v2_;
      v2_ = RotateLeft(v2_, 32);
    }
  }

  uint64_t v0_, v1_, v2_, v3_;
};

}  // namespace

uint64_t SipHash(uint64_t key0, uint64_t key1, absl::string_view bytes) {
  SipState state(key0, key1);
  const uint64_t length = bytes.size();
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    state.Absorb(ReadBytes(bytes.substr(0, 8)));
  }
  state.Absorb(ReadBytes(bytes) | length << 56);
  return state.Finish();
}

uint64_t SeedFor(uint64_t seed, absl::string_view name) {
  return SipHash(seed, 0, name);
}

at::Generator GeneratorFor(uint64_t seed, absl::string_view name) {
  return at::detail::createCPUGenerator(SeedFor(seed, name));
}

}  // namespace tandem
