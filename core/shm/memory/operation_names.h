// Names of the operations of ranks that share memory, for messages.

#ifndef TANDEM_CORE_SHM_MEMORY_OPERATION_NAMES_H_
#define TANDEM_CORE_SHM_MEMORY_OPERATION_NAMES_H_

#include <cstdint>
#include <string>

#include "core/shm/memory/segment.h"

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
  kMonitoredBarrier,
};

// "all-reduce", "broadcast"
const char* OperationName(ShmOp operation);

// "all-reduce of 40 bytes of Float (sum)", "broadcast of 8 bytes of Float, root
// 1", "all-to-all of Int"
std::string DescribeNote(const ShmNote& note);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_OPERATION_NAMES_H_
