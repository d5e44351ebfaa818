// Batch statistics over the ranks of a communicator: SyncBatchNorm's two
// collectives.

#ifndef TANDEM_PARALLEL_SYNC_BATCH_NORM_SYNCHRONISED_STATISTICS_H_
#define TANDEM_PARALLEL_SYNC_BATCH_NORM_SYNCHRONISED_STATISTICS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "core/comm/communicator.h"
#include "core/model/shared_statistics.h"

namespace tandem {

// The arithmetic of torch.nn.SyncBatchNorm (torch/nn/modules/_functions.py), on
// any device:
//   forward   one all-gather of (mean, variance, count), [2 * channels + 1]
//             doubles, which every rank combines in the order of the ranks
//             (Chan, Golub, LeVeque 1979), so that all have the same bits;
//   backward  one all-reduce of (sum of dy, sum of dy * x_hat), [2 * channels]
//             doubles.
// Gradients of weight and bias are those of this rank's samples, as PyTorch's.
// A rank without samples takes part with a count of 0: empty output, gradients
// zero. Where no rank has any nothing changes. x is float, double or, counted
// in float, one of their halves.
//
// Errors, as LibTorch's exceptions: c10::DistError for those of the
// communicator, with its words; a group that has one value a channel in all; a
// derivative of the backward, which would want further collectives.
//
// All ranks run the same layers in the same order, in forward and in backward,
// and nothing else uses the communicator meanwhile. Fault points:
// "sync_batch_norm:forward" and "sync_batch_norm:backward". For one thread at a
// time.
class SynchronisedStatistics : public StatisticsGroup {
 public:
  // `group` must outlive this, and every graph.
  explicit SynchronisedStatistics(Communicator& group) : group_(group) {}

  SharedStatistics Share(const at::Tensor& x,
                         const SharesStatistics& layer) override;
  at::Tensor Normalise(const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, double eps,
                       const SharedStatistics& statistics) override;

  // Takes part in the backward of [0, channels], of which nothing is here.
  void AddNothing(const at::Tensor& none);

 private:
  Communicator& group_;
};

// Null for a group of one, whose statistics are its own.
std::shared_ptr<StatisticsGroup> StatisticsOver(Communicator& group);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SYNC_BATCH_NORM_SYNCHRONISED_STATISTICS_H_
