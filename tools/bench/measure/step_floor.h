// Floor of a step: what its matrix products, convolutions and attention take by
// themselves, at their own shapes, and what all else moves through memory.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_STEP_FLOOR_H_
#define TANDEM_TOOLS_BENCH_MEASURE_STEP_FLOOR_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Whether an operator of the dispatcher ("aten::addmm") multiplies matrices.
bool IsProduct(std::string_view op);

// What does not fit in a core's caches, in bytes.
constexpr int64_t kLargeTensor = int64_t{1} << 20;

// Takes down the innermost products that `step` calls, on all threads, with
// their operands' shapes, strides and dtypes; then calls each alone, some
// times, on the calling thread: {"ms": of all, "products": [{"name",
// "operands", "ms": the median of a call, "calls"}, ...]}, those that take the
// most first. Operands lie where they did not before, and are warm as far as
// they fit in the caches.
//
// It adds up what all other operators read and write of large tensors
// (kLargeTensor), both of a tensor that one changes: {"passes": [{"name",
// "bytes", "calls"}, ...], "bytes": of all}, those that move the most first.
// Views move nothing.
//
// `recorded` is called in between: what other threads call from then on is not
// taken down.
//
// One at a time in a process. Not in a debug build: there LibTorch's headers
// give its records of calls another layout than its library.
absl::StatusOr<nlohmann::json> StepFloor(
    absl::FunctionRef<absl::Status()> step,
    absl::FunctionRef<void()> recorded = [] {});

// Bytes a second that passes over memory read and write on the calling thread,
// in tensors that fit in no cache.
double MemoryBandwidth();

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_STEP_FLOOR_H_
