// Operator profile: where a step's time goes, operator by operator.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_OP_PROFILE_H_
#define TANDEM_TOOLS_BENCH_MEASURE_OP_PROFILE_H_

#include <cstdint>
#include <nlohmann/json.hpp>

namespace tandem {

// While it lives, the processor time of every operator that LibTorch's
// dispatcher calls is taken, on the thread that calls it. One at a time in a
// process.
class OpProfile {
 public:
  OpProfile();
  ~OpProfile();
  OpProfile(const OpProfile&) = delete;
  OpProfile& operator=(const OpProfile&) = delete;

  // What was seen since the beginning, divided by `steps`: {"cpu_ms": of the
  // process, "ops": [{"name", "ms": without the operators that it called,
  // "calls"}, ...]}, the longest first.
  nlohmann::json Take(int64_t steps) const;

 private:
  uint64_t handle_;
  double started_ms_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_OP_PROFILE_H_
