// Dropout elements: which elements are dropped, one block of random numbers at
// a time, for a kernel and for whoever checks it.

#ifndef TANDEM_CORE_CUDA_DROPOUT_ELEMENTS_H_
#define TANDEM_CORE_CUDA_DROPOUT_ELEMENTS_H_

#include <cmath>
#include <cstdint>

// For functions of the host and of GPUs: what nvcc compiles for both, and any
// other compiler as it stands.
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

namespace tandem {

// What is the same for all elements.
struct DropoutFactors {
  uint32_t key[2];
  uint64_t threshold;
  float scale;
};

// Requires 0 <= p <= 1.
inline DropoutFactors MakeDropoutFactors(uint64_t key, double p) {
  return {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)},
          static_cast<uint64_t>(std::ldexp(p, 32)),
          static_cast<float>(p < 1 ? 1 / (1 - p) : 0)};
}

// Part of a sample: which of its elements a row holds, where ranks share a
// sample by positions, heads or columns. They are runs of `run` neighbours, of
// which the first begins at element `begin`, and each other one `stride` behind
// the one before. Positions, or heads, one behind the other are a single run;
// columns [first, first + n) of rows of `width` are {first, n, width}.
struct SamplePart {
  int64_t begin = 0;
  int64_t run = 0;  // 0: the whole row is one run
  int64_t stride = 0;

  // Requires a run that is not 0.
  TANDEM_HOST_DEVICE int64_t PlaceOf(int64_t i) const {
    return begin + i / run * stride + i % run;
  }
};

// The same with a run, for rows of so many elements.
inline SamplePart InRuns(SamplePart part, int64_t columns) {
  if (part.run == 0) part.run = columns;
  return part;
}

// What elements 4 * block to 4 * block + 3 of a sample are multiplied by.
struct DropoutMask {
  float of[4];
};

// By Philox4x32-10 (core/random/random.h), as core/fused/dropout_add.h says.
TANDEM_HOST_DEVICE inline DropoutMask DrawDropoutMask(
    const DropoutFactors& factors, uint64_t sample, uint64_t block) {
  uint32_t words[4] = {
      static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
      static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)};
  uint32_t low = factors.key[0];
  uint32_t high = factors.key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = words[0] * uint64_t{0xD2511F53};
    const uint64_t second = words[2] * uint64_t{0xCD9E8D57};
    const uint32_t next[4] = {
        static_cast<uint32_t>(second >> 32) ^ words[1] ^ low,
        static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ words[3] ^ high,
        static_cast<uint32_t>(first)};
    for (int k = 0; k < 4; ++k) words[k] = next[k];
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  DropoutMask mask;
  for (int k = 0; k < 4; ++k) {
    mask.of[k] = words[k] < factors.threshold ? 0 : factors.scale;
  }
  return mask;
}

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_DROPOUT_ELEMENTS_H_
