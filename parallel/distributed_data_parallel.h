// DistributedDataParallel, which lives in the room parallel/ddp.

#ifndef TANDEM_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_
#define TANDEM_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_

#include "parallel/ddp/distributed_data_parallel.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_DISTRIBUTED_DATA_PARALLEL_H_
