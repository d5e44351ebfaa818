// Metrics of a trainer's job: what its --metrics_file says of it.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_METRICS_H_
#define TANDEM_TOOLS_BENCH_PROCESS_METRICS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// The events called `name` ("step", "eval", "summary") in the file, in order;
// docs/see_and_steer.md says what they have. Internal where there is none.
absl::StatusOr<std::vector<nlohmann::json>> MetricsEvents(
    const std::string& path, const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_METRICS_H_
