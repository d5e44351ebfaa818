// Bytes of bools, from anywhere.

#ifndef TANDEM_CORE_CHECKPOINT_BOOL_BYTES_H_
#define TANDEM_CORE_CHECKPOINT_BOOL_BYTES_H_

#include <cstdint>

namespace tandem {

// Makes each byte but 0 the one of `true`. In C++ a bool of another byte means
// nothing, and kernels differ in what they make of it; PyTorch takes it for
// true.
inline void MakeBools(void* values, uint64_t bytes) {
  auto* const each = static_cast<uint8_t*>(values);
  for (uint64_t i = 0; i < bytes; ++i) each[i] = each[i] != 0 ? 1 : 0;
}

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_BOOL_BYTES_H_
