// What tools/bench_gpu shows.

#ifndef TANDEM_TOOLS_BENCH_GPU_REPORT_H_
#define TANDEM_TOOLS_BENCH_GPU_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/comparison/result.h"

namespace tandem {

// Times and their ratio, samples a second and peak memory, by case and peer.
std::string GpuTable(const std::vector<CaseResult>& results);

// {"device", "cases", "failures"}: those of AddToJson, and
// "ours_samples_per_s", "peer_samples_per_s", "ours_peak_mib", "peer_peak_mib".
nlohmann::json GpuJson(const std::vector<CaseResult>& results,
                       const std::string& device);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPU_REPORT_H_
