#include "parallel/sync_batch_norm/sync_batch_norm.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/batchnorm.h>

#include <optional>

#include "parallel/sync_batch_norm/synchronised_statistics.h"

namespace tandem {

SyncBatchNormImpl::SyncBatchNormImpl(
    const torch::nn::BatchNormOptions& its_options, Communicator& group)
    : options(its_options), group_(StatisticsOver(group)) {
  reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(
    const torch::nn::BatchNormOptions& its_options, NormTensors tensors)
    : options(its_options) {
  Register(std::move(tensors));
}

void SyncBatchNormImpl::reset() {
  NormTensors initial;
  const int64_t channels = options.num_features();
  if (options.affine()) {
    initial.weight = at::ones({channels}).set_requires_grad(true);
    initial.bias = at::zeros({channels}).set_requires_grad(true);
  }
  if (options.track_running_stats()) {
    initial.running_mean = at::zeros({channels});
    initial.running_var = at::ones({channels});
    initial.num_batches_tracked = at::tensor(0, at::kLong);
  }
  Register(std::move(initial));
}

void SyncBatchNormImpl::Register(NormTensors tensors) {
  const auto trains = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  };
  weight = register_parameter("weight", tensors.weight, trains(tensors.weight));
  bias = register_parameter("bias", tensors.bias, trains(tensors.bias));
  running_mean = register_buffer("running_mean", tensors.running_mean);
  running_var = register_buffer("running_var", tensors.running_var);
  num_batches_tracked =
      register_buffer("num_batches_tracked", tensors.num_batches_tracked);
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  CheckDimensions(x, kAnyDimensions);
  if (group_ != nullptr && is_training()) {
    return NormaliseTogether(x, tensors(), options, *this, *group_);
  }
  return NormaliseAlone(x, tensors(), options, is_training());
}

void SyncBatchNormImpl::TakeIn(const SharedStatistics& statistics) {
  tandem::TakeIn(statistics, options, tensors());
}

at::Tensor SyncBatchNormImpl::NoSamples() const {
  return NoSamplesFor(tensors(), options);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "tandem::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ")";
}

}  // namespace tandem
