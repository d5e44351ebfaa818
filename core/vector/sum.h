// Element-wise sum (or product, minimum, ...) of several ranks' arrays, always
// in the order of the ranks: the same bits whoever computes it and whenever.

#ifndef TANDEM_CORE_VECTOR_SUM_H_
#define TANDEM_CORE_VECTOR_SUM_H_

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/vector/kernels.h"

namespace tandem {

struct Reduction {
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceKind kind = ReduceKind::kSum;
  // A sum of floating-point numbers only: each term is multiplied by `factor`
  // first, as a step of its own (rounded to the dtype), and the sum is divided
  // by `divisor` last. 1: not at all.
  double factor = 1;
  double divisor = 1;
};

// ((a0 + a1) + a2) + ... for each element, without fused operations.
//
// float, double: that, which for two ranks is what Gloo and so PyTorch give.
// half, bfloat16: the terms are summed in float and rounded once. For two terms
// these are the bits of rounding after each sum, as Gloo does; for more they
// are closer to the true sum than Gloo's. Integers wrap around; bool counts as
// a bit (sum: or, product: and). The minimum of a number and NaN is the one
// that came first.
//
// Immutable; may be used by several threads at once.
class VectorSum {
 public:
  // InvalidArgument for a dtype or kind that does not go together.
  static absl::StatusOr<VectorSum> Make(const Reduction& reduction);

  // Reduces `count` elements of every array in `terms` (one at least) and
  // writes the result to each of `results`, which may be among the terms but
  // overlap them in no other way.
  void Run(absl::Span<const void* const> terms, absl::Span<void* const> results,
           int64_t count) const;

 private:
  VectorSum() = default;
  // One block into `out`, in the type that is summed in.
  void Accumulate(absl::Span<const void* const> terms, int64_t begin,
                  int64_t count, void* out) const;
  void AccumulateHalf(absl::Span<const void* const> terms, int64_t begin,
                      int64_t count, float* out) const;
  void LoadHalf(const void* term, int64_t begin, int64_t count,
                float* out) const;

  Reduction reduction_;
  int64_t element_bytes_ = 0;
  HalfLoops half_;               // of half precision only
  CombineLoop first_ = nullptr;  // the first two terms
  CombineLoop next_ = nullptr;   // each further one
  ScaleLoop multiply_ = nullptr;
  ScaleLoop divide_ = nullptr;
};

}  // namespace tandem

#endif  // TANDEM_CORE_VECTOR_SUM_H_
