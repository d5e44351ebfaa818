// The suite "gpu": models of a size that is worth a GPU, on one device, beside
// PyTorch eager, compiled and with CUDA graphs.

#ifndef TANDEM_TOOLS_BENCH_GPU_SUITE_H_
#define TANDEM_TOOLS_BENCH_GPU_SUITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/suite/suite.h"

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

// Recipes of tools/bench/peers/one_device.py. Where none is named, "eager" and
// "compile", and on a GPU "reduce_overhead" and "cuda_graphs": all of them may
// fail but the first.
std::vector<Peer> GpuPeers(const std::string& device,
                           const std::vector<std::string>& named);

// Losses are compared first: with TF32, operands have as few bits as with bf16,
// or little more.
absl::StatusOr<CaseResult> RunGpuCase(const Case& bench,
                                      const std::vector<Peer>& peers,
                                      const ComparisonOptions& options);

// "cases", "failures", "kernels", with samples a second, peak memory and the
// device.
std::vector<Table> GpuTables(const std::vector<CaseResult>& results,
                             const std::string& device);

absl::StatusOr<SuiteReport> RunGpuSuite(const BenchFlags& flags,
                                        const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPU_SUITE_H_
