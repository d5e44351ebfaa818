#include "core/vector/sum.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// What stays in the first-level cache, with as much of two terms.
constexpr int64_t kBlockBytes = 8192;
constexpr int64_t kHalfBlock = kBlockBytes / sizeof(float);

const void* At(const void* array, int64_t bytes) {
  return static_cast<const std::byte*>(array) + bytes;
}

void* At(void* array, int64_t bytes) {
  return static_cast<std::byte*>(array) + bytes;
}

absl::Status Refuse(const Reduction& reduction) {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot reduce ", c10::toString(reduction.dtype), " like this",
      reduction.factor != 1 || reduction.divisor != 1
          ? ": only sums of floating-point numbers are scaled"
          : ""));
}

}  // namespace

absl::StatusOr<VectorSum> VectorSum::Make(const Reduction& reduction) {
  VectorSum sum;
  sum.reduction_ = reduction;
  sum.element_bytes_ = static_cast<int64_t>(c10::elementSize(reduction.dtype));
  sum.half_ = FindHalfLoops(reduction.dtype);
  const bool half = sum.half_.widen != nullptr;
  const auto type = half ? c10::ScalarType::Float : reduction.dtype;
  // Half precision is scaled as it is loaded.
  const bool scaled = reduction.factor != 1 && !half;
  const auto find = [&](Scaling scaling) {
    return FindCombineLoop(type, reduction.kind,
                           scaled ? scaling : Scaling::kNone);
  };
  sum.first_ = find(Scaling::kBoth);
  sum.next_ = find(Scaling::kSecond);
  sum.multiply_ = FindMultiplyLoop(type);
  sum.divide_ = FindDivideLoop(type);
  const bool scales = reduction.factor != 1 || reduction.divisor != 1;
  if (sum.first_ == nullptr || sum.next_ == nullptr ||
      (scales &&
       (reduction.kind != ReduceKind::kSum || sum.multiply_ == nullptr))) {
    return Refuse(reduction);
  }
  return sum;
}

void VectorSum::LoadHalf(const void* term, int64_t begin, int64_t count,
                         float* out) const {
  half_.widen(out, At(term, begin * element_bytes_), count);
  if (reduction_.factor == 1) return;
  // Rounded, as if the tensor had been multiplied before.
  alignas(64) std::byte rounded[kHalfBlock * 2];
  multiply_(out, out, count, reduction_.factor);
  half_.narrow(rounded, out, count);
  half_.widen(out, rounded, count);
}

void VectorSum::AccumulateHalf(absl::Span<const void* const> terms,
                               int64_t begin, int64_t count, float* out) const {
  alignas(64) float next[kHalfBlock];
  LoadHalf(terms[0], begin, count, out);
  for (const void* term : terms.subspan(1)) {
    LoadHalf(term, begin, count, next);
    next_(out, out, next, count, 1);
  }
}

void VectorSum::Accumulate(absl::Span<const void* const> terms, int64_t begin,
                           int64_t count, void* out) const {
  const int64_t offset = begin * element_bytes_;
  const double factor = reduction_.factor;
  if (terms.size() > 1) {
    first_(out, At(terms[0], offset), At(terms[1], offset), count, factor);
  } else if (factor != 1) {
    multiply_(out, At(terms[0], offset), count, factor);
  } else {
    std::memmove(out, At(terms[0], offset), count * element_bytes_);
  }
  for (size_t i = 2; i < terms.size(); ++i) {
    next_(out, out, At(terms[i], offset), count, factor);
  }
}

void VectorSum::Run(absl::Span<const void* const> terms,
                    absl::Span<void* const> results, int64_t count) const {
  alignas(64) std::byte block[kBlockBytes];
  // Not in the block: memory that is read as float is not written as another
  // type in the same loop.
  alignas(64) float wide[kHalfBlock];
  const bool half = half_.widen != nullptr;
  const int64_t step = half ? kHalfBlock : kBlockBytes / element_bytes_;
  // With two terms or fewer every element is read before it is written.
  const bool direct = !half && terms.size() <= 2;
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t n = std::min(step, count - begin);
    const int64_t offset = begin * element_bytes_;
    void* const sum = direct ? At(results[0], offset) : block;
    if (half) {
      AccumulateHalf(terms, begin, n, wide);
    } else {
      Accumulate(terms, begin, n, sum);
    }
    void* const summed = half ? wide : sum;
    if (reduction_.divisor != 1) divide_(summed, summed, n, reduction_.divisor);
    if (half) half_.narrow(block, wide, n);
    for (size_t i = direct ? 1 : 0; i < results.size(); ++i) {
      std::memcpy(At(results[i], offset), sum, n * element_bytes_);
    }
  }
}

}  // namespace tandem
