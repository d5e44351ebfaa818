#include "core/random/philox.h"

namespace tandem {
namespace {

// Of the paper's table 2 and section 3.3.
constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;  // the golden ratio
constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
constexpr int kRounds = 10;

uint32_t High(uint64_t product) { return static_cast<uint32_t>(product >> 32); }
uint32_t Low(uint64_t product) { return static_cast<uint32_t>(product); }

PhiloxBlock Round(const PhiloxBlock& x, const PhiloxKey& key) {
  const uint64_t product0 = kMultiplier0 * x[0];
  const uint64_t product1 = kMultiplier1 * x[2];
  return {High(product1) ^ x[1] ^ key[0], Low(product1),
          High(product0) ^ x[3] ^ key[1], Low(product0)};
}

}  // namespace

PhiloxBlock Philox(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < kRounds; ++round) {
    counter = Round(counter, key);
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

}  // namespace tandem
