// BatchNorm2d that knows of microbatches.

#ifndef TANDEM_MODELS_LAYERS_BATCH_NORM_2D_H_
#define TANDEM_MODELS_LAYERS_BATCH_NORM_2D_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>

#include <cstdint>
#include <map>

#include "core/model/microbatch_scope.h"
#include "core/model/statistics_records.h"
#include "models/layers/norm_function.h"

namespace tandem {

// torch.nn.BatchNorm2d, bit for bit, where there is no MicrobatchScope. In one,
// every microbatch is still normalised by its own statistics, but
//   - one that is recomputed leaves the running statistics alone;
//   - with defers_statistics the running statistics take in those of the whole
//     mini-batch, once, when all its microbatches have come, in whatever order,
//     as if it had gone through in one piece (torchgpipe's DeferredBatchNorm,
//     which has the biased variance; PyTorch's running variance is unbiased,
//     and so is this);
//   - with records the running statistics are left alone, and what they would
//     take in is recorded; both at once is LibTorch's error.
//
// Runs under a WeightGradientSink. Not thread-safe.
class BatchNorm2d : public torch::nn::BatchNorm2dImpl,
                    public RecordsStatistics {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  // [n, channels, height, width]; in training, more than one value a channel.
  at::Tensor forward(const at::Tensor& x);

  RunningStatistics running_statistics() const override;

 private:
  // Of one microbatch, or several.
  struct Gathered {
    int64_t count = 0;   // values a channel
    at::Tensor mean;     // [channels], double, as the next
    at::Tensor squares;  // sum of squared distances from the mean
  };
  // Of the microbatches that have come, by index: schedules may have any order.
  struct Parts {
    int count = 0;  // of all
    std::map<int, Gathered> of;
  };

  at::Tensor Recorded(const at::Tensor& x, BatchNormArguments arguments,
                      const Microbatch& microbatch);
  Gathered PartOf(int64_t count, const BatchStatistics& statistics) const;
  static void Add(const Gathered& part, Gathered* sum);
  void Gather(const Microbatch& microbatch, const Gathered& part);
  void Commit(const Gathered& whole);

  Parts parts_;
};

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_BATCH_NORM_2D_H_
