// Randomness is a function: what is drawn depends on the job's seed and on what
// it is drawn for, never on what was drawn before or by whom. So any rank can
// make any part of a model, in any order, and sees the numbers that another
// rank, layout or run would see.
//
// All functions are thread-safe.

#ifndef TANDEM_CORE_RANDOM_RANDOM_H_
#define TANDEM_CORE_RANDOM_RANDOM_H_

#include <ATen/core/Generator.h>

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tandem {

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
