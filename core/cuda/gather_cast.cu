#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/cuda/gather_cast.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GatherAll(const __grid_constant__ GatherTable table, float factor,
              float* bucket) {
  const GatherSpan span = SpanOfChunk(table, blockIdx.x);
  const GatherPiece& piece = table.pieces[span.piece];
  const T* from = static_cast<const T*>(piece.from);
  float* to = bucket + piece.to;
#pragma unroll 4
  for (int64_t i = span.begin + threadIdx.x; i < span.end; i += kThreads) {
    to[i] = factor * static_cast<float>(from[i]);
  }
}

template <typename T>
cudaError_t Gather(const GatherPiece* pieces, int count, float factor,
                   float* bucket, cudaStream_t stream) {
  for (int begin = 0; begin < count; begin += kMostGatherPieces) {
    const int rest = count - begin;
    const GatherTable table = MakeGatherTable(
        pieces + begin, rest < kMostGatherPieces ? rest : kMostGatherPieces);
    if (table.chunks() == 0) continue;
    GatherAll<T>
        <<<table.chunks(), kThreads, 0, stream>>>(table, factor, bucket);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t GatherCast(const GatherPiece* pieces, int count, GradientType type,
                       float factor, float* bucket, cudaStream_t stream) {
  switch (type) {
    case GradientType::kFloat32:
      return Gather<float>(pieces, count, factor, bucket, stream);
    case GradientType::kBFloat16:
      return Gather<__nv_bfloat16>(pieces, count, factor, bucket, stream);
    case GradientType::kFloat16:
      return Gather<__half>(pieces, count, factor, bucket, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tandem
