// Randomness is a function: what is drawn depends on the job's seed and on what
// it is drawn for, never on what was drawn before or by whom. So any rank can
// make any part of a model, in any order, and sees the numbers that another
// rank, layout or run would see.
//
// All functions are thread-safe.

#ifndef TANDEM_CORE_RANDOM_RANDOM_H_
#define TANDEM_CORE_RANDOM_RANDOM_H_

#include <ATen/core/Generator.h>

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace tandem {

// Random numbers by number: what stands at a place of a stream is a function of
// that place, so that any part of it can be drawn alone.

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy
// as 1, 2, 3", 2011): four uniform 32-bit numbers for every counter, a stream
// of 2^130 numbers for every key. The same on every platform.
PhiloxBlock Philox(PhiloxBlock counter, PhiloxKey key);

// SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012) of
// `bytes` under the 128-bit key (key0, key1). The same on every platform.
uint64_t SipHash(uint64_t key0, uint64_t key1, absl::string_view bytes);

// The seed of whatever is called `name` in a job that has seed `seed`.
uint64_t SeedFor(uint64_t seed, absl::string_view name);

// A fresh CPU generator, seeded with SeedFor(seed, name). PyTorch's CPU
// generator keeps the low 32 bits of a seed. Generators of different names are
// independent; one generator is not to be shared between threads.
at::Generator GeneratorFor(uint64_t seed, absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_CORE_RANDOM_RANDOM_H_
