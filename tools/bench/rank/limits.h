// Limits of a rank's machine, as answers of its server: what it multiplies
// with, and how fast that and an all-reduce are at best.

#ifndef TANDEM_TOOLS_BENCH_RANK_LIMITS_H_
#define TANDEM_TOOLS_BENCH_RANK_LIMITS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"

namespace tandem {

// {"mkl_gflops", "one_dnn_gflops"}
nlohmann::json GemmLimits();

// {"ms", "gloo_ms"} of `numel` float32 numbers; `rendezvous` as ConnectRanks
// has it, a new one. Collective.
absl::StatusOr<nlohmann::json> AllReduceLimits(Communicator& world,
                                               int64_t numel,
                                               const std::string& rendezvous);

// "products: MKL for 2 shapes, oneDNN for 11, as timed; AVX512 kernels": of a
// workload of this dtype, with what was chosen in the file `cache` so far.
std::string DescribeKernels(const std::string& dtype, const std::string& cache);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_LIMITS_H_
