// Sizes rounded up to one of a few, so that memory that was freed fits what is
// asked for next.

#ifndef TANDEM_CORE_PROGRAM_SIZE_CLASSES_H_
#define TANDEM_CORE_PROGRAM_SIZE_CLASSES_H_

#include <cstddef>

namespace tandem {

// Every size up to 512 is rounded up to a multiple of 64; beyond, there are
// eight sizes between one power of two and the next, so that at most an eighth
// is lost. Zero counts as 1.
//
// The class of a size: 0 for 1 .. 64, 1 for 65 .. 128, and so on.
size_t SizeClassOf(size_t bytes);

// The greatest size of a class, which is what a block of it holds.
size_t SizeOfClass(size_t size_class);

// There are no more classes than this, for sizes up to 2^48.
constexpr size_t kSizeClasses = 8 * (48 - 9) + 8;

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_SIZE_CLASSES_H_
