// Device memory statistics (torch.cuda.memory_stats), of any kind of device.

#ifndef TANDEM_CORE_MEMORY_DEVICE_MEMORY_H_
#define TANDEM_CORE_MEMORY_DEVICE_MEMORY_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/memory/memory_use.h"

namespace tandem {

struct DeviceMemory {
  MemoryBooks books;
  // By whom: categories are known.
  bool has_categories = false;
  // What LibTorch's caching allocator has taken from the device, now and at
  // most, in bytes: at least what is in use of it. 0: there is none.
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
  // Of the whole device, whoever uses it; 0: not known.
  int64_t free = 0;
  int64_t total = 0;
};

// Books by category of devices of a kind, which `books` gives by index. For
// the code that keeps them; once. Thread-safe.
using BooksFunction = MemoryBooks (*)(int device);
void RegisterMemoryBooks(c10::DeviceType type, BooksFunction books);

// What is known of a device's memory: by its registered books; without them by
// LibTorch's caching allocator (c10::DeviceAllocator), all of it `other`.
// Nothing for the CPU and where there is neither. Thread-safe.
std::optional<DeviceMemory> MemoryOf(c10::Device device);

// "12 MiB: parameters 8 MiB, other 4 MiB; 20 MiB of 80 GiB reserved".
std::string DescribePeak(const DeviceMemory& memory);

// Keeps books of all GPUs' memory, from here on, which MemoryOf then gives, and
// has out-of-memory errors tell by category what was held. For programs, when
// CUDA is in use and before tensors are made; nothing in builds without CUDA.
// Costs a lock and an entry of a table for each allocation.
void KeepBooksOfGpus();

}  // namespace tandem

#endif  // TANDEM_CORE_MEMORY_DEVICE_MEMORY_H_
