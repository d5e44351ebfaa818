// Results of a case of distributed data parallel, and what the machine could do
// at best.

#ifndef TANDEM_TOOLS_BENCH_DDP_RESULT_H_
#define TANDEM_TOOLS_BENCH_DDP_RESULT_H_

#include <nlohmann/json.hpp>

#include "tools/bench/comparison/result.h"

namespace tandem {

struct DdpResult : CaseResult {
  // Of a rank, while all ranks multiply: at::mm's rate, and MatrixProduct's.
  double mkl_gflops = 0;
  double one_dnn_gflops = 0;
  // Of as many numbers as the model has gradients, over tandem's backend and
  // over Gloo, with nothing else to do.
  double all_reduce_ms = 0;
  double gloo_all_reduce_ms = 0;
  nlohmann::json profile;   // of rank 0's step alone: see op_profile.h
  nlohmann::json products;  // the same step's: see product_floor.h
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DDP_RESULT_H_
