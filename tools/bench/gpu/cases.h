// The cases of tools/bench_gpu: models of a size that is worth a GPU, on one
// device.

#ifndef TANDEM_TOOLS_BENCH_GPU_CASES_H_
#define TANDEM_TOOLS_BENCH_GPU_CASES_H_

#include <cstdint>
#include <vector>

#include "tools/bench/case/case.h"

namespace tandem {

// 0: the case's own.
struct GpuSizes {
  int64_t batch_size = 0;
  int64_t image_size = 0;  // resnet18's, on each side
  int64_t tokens = 0;      // gpt2's
};

// resnet18 (images of 3 x 224 x 224, 256 a batch), gpt2 (1024 tokens, 8 a
// batch) and mlp_small, each in one piece.
std::vector<Case> GpuCases(const GpuSizes& sizes = {});

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPU_CASES_H_
