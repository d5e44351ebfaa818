// BatchNorm2d that knows of microbatches.

#ifndef TANDEM_MODELS_LAYERS_BATCH_NORM_2D_H_
#define TANDEM_MODELS_LAYERS_BATCH_NORM_2D_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "core/context/compute_context.h"
#include "core/model/shared_statistics.h"
#include "core/model/statistics_records.h"
#include "models/functions/norm_function.h"

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
// With a statistics group (SyncBatchNorm) a microbatch is normalised by the
// statistics of all that compute it, and the running ones take in these, at
// once or deferred; to record them is LibTorch's error.
//
// Runs under a WeightGradientSink. Not thread-safe.
class BatchNorm2d : public torch::nn::BatchNorm2dImpl,
                    public RecordsStatistics,
                    public SharesStatistics {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  // [n, channels, height, width]; in training, more than one value a channel.
  at::Tensor forward(const at::Tensor& x);

  RunningStatistics running_statistics() const override;

  void set_statistics_group(std::shared_ptr<StatisticsGroup> group) override {
    group_ = std::move(group);
  }
  bool has_statistics_group() const override { return group_ != nullptr; }
  void TakeIn(const SharedStatistics& statistics) override;
  at::Tensor NoSamples() const override;

 private:
  // Parts of the microbatches that have come, by index: schedules may have any
  // order.
  struct Parts {
    int count = 0;  // of all
    std::map<int, GatheredStatistics> of;
  };

  at::Tensor Tracked(const at::Tensor& x, BatchNormArguments arguments,
                     const Microbatch& microbatch);
  at::Tensor Together(const at::Tensor& x);
  at::Tensor Recorded(const at::Tensor& x, BatchNormArguments arguments,
                      const Microbatch& microbatch);
  GatheredStatistics StatisticsPart(int64_t count,
                                    const BatchStatistics& statistics) const;
  void Gather(const Microbatch& microbatch, const GatheredStatistics& part);
  void Commit(const GatheredStatistics& whole);

  Parts parts_;
  std::shared_ptr<StatisticsGroup> group_;
};

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_BATCH_NORM_2D_H_
