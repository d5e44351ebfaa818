// The operations of ranks that share memory, and how messages name them.

#ifndef TANDEM_CORE_SHM_OPERATION_NAMES_H_
#define TANDEM_CORE_SHM_OPERATION_NAMES_H_

#include <cstdint>
#include <string>

#include "core/shm_segment.h"

namespace tandem {

enum class ShmOp : uint32_t {
  kNone,
  kBarrier,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kGather,
  kScatter,
  kBroadcast,
  kAllToAll,
};

// "all-reduce", "broadcast"
const char* NameOf(ShmOp operation);

// "all-reduce (variant 0) of 40 bytes of Float", "broadcast of 8 bytes from
// rank 1"
std::string DescribeNote(const ShmNote& note);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_OPERATION_NAMES_H_
