// SyncBatchNorm, which lives in the room parallel/sync_batch_norm.

#ifndef TANDEM_PARALLEL_SYNC_BATCH_NORM_H_
#define TANDEM_PARALLEL_SYNC_BATCH_NORM_H_

#include "parallel/sync_batch_norm/convert.h"          // IWYU pragma: export
#include "parallel/sync_batch_norm/sync_batch_norm.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_SYNC_BATCH_NORM_H_
