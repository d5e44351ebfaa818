#include "core/random/philox.h"

#include <ATen/core/PhiloxRNGEngine.h>

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

}  // namespace tandem
