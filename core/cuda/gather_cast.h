// Gather and cast: gradients of any floating-point type, copied into a bucket
// of float32 and multiplied by a factor, many in one launch.

#ifndef TANDEM_CORE_CUDA_GATHER_CAST_H_
#define TANDEM_CORE_CUDA_GATHER_CAST_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/gather_table.h"

namespace tandem {

enum class GradientType { kFloat32, kBFloat16, kFloat16 };

// bucket[piece.to + i] = factor * piece.from[i], for each of `count` pieces,
// which are all of one type, in the current device's memory, and go to places
// that do not overlap. One launch for each kMostGatherPieces. `pieces` is read
// before the call returns. Asynchronous in `stream`.
cudaError_t GatherCast(const GatherPiece* pieces, int count, GradientType type,
                       float factor, float* bucket, cudaStream_t stream);

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_GATHER_CAST_H_
