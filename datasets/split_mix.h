// Random bits as a function.

#ifndef TANDEM_DATASETS_SPLIT_MIX_H_
#define TANDEM_DATASETS_SPLIT_MIX_H_

#include <cstdint>

namespace tandem {

// Mixes `key` and `counter` into 64 bits that look random: the output function
// of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014) over both.
inline uint64_t SplitMix(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The same as a number in [0, 1), with 24 random bits.
inline float SplitMixUniform(uint64_t key, uint64_t counter) {
  return static_cast<float>(SplitMix(key, counter) >> 40) * 0x1p-24f;
}

}  // namespace tandem

#endif  // TANDEM_DATASETS_SPLIT_MIX_H_
