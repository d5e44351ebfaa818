// Forward of BatchNorm modules whose statistics are a group's: what the types
// of sync_batch_norm.h share.

#ifndef TANDEM_PARALLEL_SYNC_BATCH_NORM_NORMALISE_TOGETHER_H_
#define TANDEM_PARALLEL_SYNC_BATCH_NORM_NORMALISE_TOGETHER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/options/batchnorm.h>

#include <cstdint>

#include "core/model/shared_statistics.h"

namespace tandem {

// As BatchNorm calls them; handles, so that writing to one writes to the
// module's.
struct NormTensors {
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;
};

constexpr int64_t kAnyDimensions = 0;

// LibTorch's error unless x is [n, channels, ...] with so many more dimensions
// (of 1: none will do); kAnyDimensions: any.
void CheckDimensions(const at::Tensor& x, int64_t dimensions);

// In training, by the group's statistics, which the running ones take in unless
// the microbatch is computed again. LibTorch's error in a MicrobatchScope that
// defers or records statistics, which models/layers/batch_norm_2d.h can.
at::Tensor NormaliseTogether(const at::Tensor& x, const NormTensors& tensors,
                             const torch::nn::BatchNormOptions& options,
                             const SharesStatistics& layer,
                             StatisticsGroup& group);

// torch.nn.BatchNorm, whatever the dimensions.
at::Tensor NormaliseAlone(const at::Tensor& x, const NormTensors& tensors,
                          const torch::nn::BatchNormOptions& options,
                          bool training);

void TakeIn(const SharedStatistics& statistics,
            const torch::nn::BatchNormOptions& options, NormTensors tensors);

// [0, channels], where the module is.
at::Tensor NoSamplesFor(const NormTensors& tensors,
                        const torch::nn::BatchNormOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SYNC_BATCH_NORM_NORMALISE_TOGETHER_H_
