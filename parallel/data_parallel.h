// DataParallel, which lives in the room parallel/data_parallel.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_H_

#include "parallel/data_parallel/data_parallel.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_H_
