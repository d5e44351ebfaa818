#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "core/cuda/dropout_kernel.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 16;

// A thread takes four elements, for which one block of numbers is drawn.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    DropoutAdd(T* y, const T* x, const T* residual, int64_t rows,
               int64_t columns, uint64_t first_sample, DropoutFactors factors) {
  const int64_t draws = (columns + 3) / 4;
  const int64_t all = rows * draws;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all;
       i += step) {
    const int64_t row = i / draws;
    const int64_t draw = i % draws;
    const DropoutMask mask = DrawDropoutMask(factors, first_sample + row, draw);
    const int64_t at = row * columns + 4 * draw;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (4 * draw + k >= columns) break;
      // Rounded twice, as on the CPU.
      float value = __fmul_rn(static_cast<float>(x[at + k]), mask.of[k]);
      if (residual != nullptr) {
        value = __fadd_rn(value, static_cast<float>(residual[at + k]));
      }
      y[at + k] = static_cast<T>(value);
    }
  }
}

// The same of elements that are not where their sample has them: a block of
// numbers serves those of a thread that follow each other.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    DropoutAddPart(T* y, const T* x, const T* residual, int64_t rows,
                   int64_t columns, uint64_t first_sample,
                   DropoutFactors factors, SamplePart part) {
  const int64_t quads = (columns + 3) / 4;
  const int64_t all = rows * quads;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all;
       i += step) {
    const int64_t row = i / quads;
    const int64_t first = 4 * (i % quads);
    int64_t drawn = -1;
    DropoutMask mask;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (first + k >= columns) break;
      const int64_t place = part.PlaceOf(first + k);
      if (place / 4 != drawn) {
        drawn = place / 4;
        mask = DrawDropoutMask(factors, first_sample + row, drawn);
      }
      const int64_t at = row * columns + first + k;
      float value = __fmul_rn(static_cast<float>(x[at]), mask.of[place % 4]);
      if (residual != nullptr) {
        value = __fadd_rn(value, static_cast<float>(residual[at]));
      }
      y[at] = static_cast<T>(value);
    }
  }
}

template <typename T>
cudaError_t Launch(const DropoutArrays& arrays, int64_t first_sample,
                   const DropoutFactors& factors, cudaStream_t stream) {
  const int64_t threads = arrays.rows * ((arrays.columns + 3) / 4);
  if (threads == 0) return cudaSuccess;
  const int64_t blocks =
      std::min((threads + kThreads - 1) / kThreads, kMostBlocks);
  const SamplePart part = InRuns(arrays.part, arrays.columns);
  if (part.begin == 0 && part.run == arrays.columns) {
    DropoutAdd<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        static_cast<T*>(arrays.y), static_cast<const T*>(arrays.x),
        static_cast<const T*>(arrays.residual), arrays.rows, arrays.columns,
        static_cast<uint64_t>(first_sample), factors);
  } else {
    DropoutAddPart<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        static_cast<T*>(arrays.y), static_cast<const T*>(arrays.x),
        static_cast<const T*>(arrays.residual), arrays.rows, arrays.columns,
        static_cast<uint64_t>(first_sample), factors, part);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchDropoutAdd(const DropoutArrays& arrays, int64_t first_sample,
                             const DropoutFactors& factors,
                             cudaStream_t stream) {
  switch (arrays.type) {
    case DropoutType::kFloat32:
      return Launch<float>(arrays, first_sample, factors, stream);
    case DropoutType::kBFloat16:
      return Launch<__nv_bfloat16>(arrays, first_sample, factors, stream);
    case DropoutType::kFloat16:
      return Launch<__half>(arrays, first_sample, factors, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tandem
