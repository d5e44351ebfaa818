// Random numbers by number: what stands at a place of a stream is a function of
// that place, so that any part of it can be drawn alone.

#ifndef TANDEM_CORE_RANDOM_PHILOX_H_
#define TANDEM_CORE_RANDOM_PHILOX_H_

#include <array>
#include <cstdint>

namespace tandem {

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy
// as 1, 2, 3", 2011): four uniform 32-bit numbers for every counter, a stream
// of 2^130 numbers for every key. The same on every platform.
PhiloxBlock Philox(PhiloxBlock counter, PhiloxKey key);

}  // namespace tandem

#endif  // TANDEM_CORE_RANDOM_PHILOX_H_
