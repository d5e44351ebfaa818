// SyncBatchNorm: torch.nn.SyncBatchNorm for C++, on CPUs and devices alike.
//
//   struct Net : torch::nn::Module {
//     torch::nn::Conv2d conv{nullptr};
//     tandem::SyncableBatchNorm2d norm{nullptr};  // BatchNorm2d at first
//   };
//   auto net = std::make_shared<Net>();
//   TANDEM_RETURN_IF_ERROR(ConvertSyncBatchNorm(*net, world).status());
//   TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, world));
//
// docs/layouts.md tells more.

#ifndef TANDEM_PARALLEL_SYNC_BATCH_NORM_SYNC_BATCH_NORM_H_
#define TANDEM_PARALLEL_SYNC_BATCH_NORM_SYNC_BATCH_NORM_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "core/model/shared_statistics.h"

namespace tandem {

// Tensors as BatchNorm calls them; handles, so that writing to one writes to
// the module's.
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

// Normalises x [n, channels, ...] in training by the mean and the biased
// variance over the samples of all ranks of a group (n may be 0 here and there,
// or everywhere); in evaluation by running statistics, without communication.
// These take in the unbiased variance over the group's count. Parameters,
// buffers and their names are BatchNorm's. Errors are LibTorch's; those of the
// group, and all that holds of its collectives: synchronised_statistics.h.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl>,
                          public SharesStatistics {
 public:
  // `group` must outlive the module and its graphs. A group of one normalises
  // as BatchNorm does.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options,
                    Communicator& group);
  // With the parameters and buffers of another one, the very same tensors.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options,
                    NormTensors tensors);

  at::Tensor forward(const at::Tensor& x);

  void reset() override;  // to initial values, in tensors of its own
  void pretty_print(std::ostream& stream) const override;
  void set_statistics_group(std::shared_ptr<StatisticsGroup> group) override {
    group_ = std::move(group);
  }
  bool has_statistics_group() const override { return group_ != nullptr; }
  void TakeIn(const SharedStatistics& statistics) override;
  at::Tensor NoSamples() const override;

  torch::nn::BatchNormOptions options;
  at::Tensor weight, bias;  // undefined unless options.affine()
  // Undefined unless options.track_running_stats().
  at::Tensor running_mean, running_var, num_batches_tracked;

 private:
  NormTensors tensors() const {
    return {weight, bias, running_mean, running_var, num_batches_tracked};
  }
  void Register(NormTensors tensors);

  std::shared_ptr<StatisticsGroup> group_;
};
TORCH_MODULE(SyncBatchNorm);

// torch::nn::BatchNormDd until ConvertSyncBatchNorm gives it a group: for
// members, whose type cannot change.
template <size_t D, typename Derived>
class SyncableBatchNormImpl : public torch::nn::BatchNormImplBase<D, Derived>,
                              public SharesStatistics {
 public:
  using Base = torch::nn::BatchNormImplBase<D, Derived>;
  using Base::Base;

  at::Tensor forward(const at::Tensor& x) {
    if (group_ == nullptr || !this->is_training()) return Base::forward(x);
    _check_input_dim(x);
    return NormaliseTogether(x, tensors(), this->options, *this, *group_);
  }

  void set_statistics_group(std::shared_ptr<StatisticsGroup> group) override {
    group_ = std::move(group);
  }
  bool has_statistics_group() const override { return group_ != nullptr; }
  void TakeIn(const SharedStatistics& statistics) override {
    tandem::TakeIn(statistics, this->options, tensors());
  }
  at::Tensor NoSamples() const override {
    return NoSamplesFor(tensors(), this->options);
  }

 protected:
  void _check_input_dim(const at::Tensor& x) override {
    CheckDimensions(x, static_cast<int64_t>(D));
  }

 private:
  NormTensors tensors() const {
    return {this->weight, this->bias, this->running_mean, this->running_var,
            this->num_batches_tracked};
  }

  std::shared_ptr<StatisticsGroup> group_;
};

// [n, channels] or [n, channels, length].
class SyncableBatchNorm1dImpl
    : public SyncableBatchNormImpl<1, SyncableBatchNorm1dImpl> {
 public:
  using SyncableBatchNormImpl::SyncableBatchNormImpl;
};
TORCH_MODULE(SyncableBatchNorm1d);

// [n, channels, height, width].
class SyncableBatchNorm2dImpl
    : public SyncableBatchNormImpl<2, SyncableBatchNorm2dImpl> {
 public:
  using SyncableBatchNormImpl::SyncableBatchNormImpl;
};
TORCH_MODULE(SyncableBatchNorm2d);

// [n, channels, depth, height, width].
class SyncableBatchNorm3dImpl
    : public SyncableBatchNormImpl<3, SyncableBatchNorm3dImpl> {
 public:
  using SyncableBatchNormImpl::SyncableBatchNormImpl;
};
TORCH_MODULE(SyncableBatchNorm3d);

// torch.nn.SyncBatchNorm.convert_sync_batchnorm: from now on every BatchNorm of
// the module normalises, in training, by the statistics of all ranks of
// `group`, which must outlive it. Returns how many there are. Not collective;
// alike on all ranks.
//
// What derives from SharesStatistics (SyncableBatchNorm*, SyncBatchNorm, the
// layers of models/) gets the group; a torch::nn::BatchNorm1d, 2d or 3d within
// a torch::nn::Sequential is replaced by a SyncBatchNorm with the same
// parameters, buffers and mode. One that a member holds by its type cannot be
// replaced: InvalidArgument names it, and nothing is changed.
absl::StatusOr<int> ConvertSyncBatchNorm(torch::nn::Module& module,
                                         Communicator& group);
// The same of all layers.
absl::StatusOr<int> ConvertSyncBatchNorm(const LayerList& layers,
                                         Communicator& group);

// The layers' modules that share statistics where they are given a group, in
// the order in which they were registered; replaces what ConvertSyncBatchNorm
// replaces.
absl::StatusOr<std::vector<SharesStatistics*>> MakeSyncable(
    const LayerList& layers);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SYNC_BATCH_NORM_SYNC_BATCH_NORM_H_
