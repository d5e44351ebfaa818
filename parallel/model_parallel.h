// Plain model parallelism, which lives in the room parallel/pipeline.

#ifndef TANDEM_PARALLEL_MODEL_PARALLEL_H_
#define TANDEM_PARALLEL_MODEL_PARALLEL_H_

#include "parallel/pipeline/model_parallel.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_MODEL_PARALLEL_H_
