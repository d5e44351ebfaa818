// Product floor of a step: what its matrix products, convolutions and
// attention take by themselves, at their own shapes.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_PRODUCT_FLOOR_H_
#define TANDEM_TOOLS_BENCH_MEASURE_PRODUCT_FLOOR_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Whether an operator of the dispatcher ("aten::addmm") multiplies matrices.
bool IsProduct(std::string_view op);

// Takes down the innermost products that `step` calls, on all threads, with
// their operands' shapes, strides and dtypes; then calls each alone, some
// times, on the calling thread: {"ms": of all, "products": [{"name",
// "operands", "ms": the median of a call, "calls"}, ...]}, those that take the
// most first. Operands lie where they did not before, and are warm as far as
// they fit in the caches. One at a time in a process. Not in a debug build:
// there LibTorch's headers give its records of calls another layout than its
// library.
absl::StatusOr<nlohmann::json> ProductFloor(
    absl::FunctionRef<absl::Status()> step);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_PRODUCT_FLOOR_H_
