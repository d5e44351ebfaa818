#include "parallel/sync_batch_norm/sync_batch_norm.h"

#include <ATen/Context.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/functional/batchnorm.h>

#include <optional>

#include "core/model/microbatch_scope.h"
#include "parallel/sync_batch_norm/synchronised_statistics.h"

namespace tandem {

void CheckDimensions(const at::Tensor& x, int64_t dimensions) {
  const int64_t more = x.dim() - 2;
  const bool fits = dimensions == kAnyDimensions
                        ? more >= 0
                        : more == dimensions || (dimensions == 1 && more == 0);
  TORCH_CHECK(fits, "expected an input [n, channels, ...] with ",
              dimensions == kAnyDimensions ? std::string("any number of")
                                           : std::to_string(dimensions),
              " more dimensions, but got ", x.sizes());
}

at::Tensor NormaliseTogether(const at::Tensor& x, const NormTensors& tensors,
                             const torch::nn::BatchNormOptions& options,
                             const SharesStatistics& layer,
                             StatisticsGroup& group) {
  TORCH_CHECK(x.size(1) == options.num_features(), "SyncBatchNorm of ",
              options.num_features(), " channels got an input of ", x.sizes());
  const auto microbatch = MicrobatchScope::Current();
  if (microbatch.has_value()) {
    TORCH_CHECK_VALUE(
        !microbatch->defers_statistics && microbatch->records == nullptr,
        "SyncBatchNorm of a torch::nn module takes in its statistics at once: "
        "they can be deferred or recorded by microbatch with "
        "models/layers' BatchNorm2d alone");
  }
  const SharedStatistics statistics = group.Share(x, layer);
  const bool again = microbatch.has_value() && microbatch->is_recomputed;
  if (!again) TakeIn(statistics, options, tensors);
  return group.Normalise(x, tensors.weight, tensors.bias, options.eps(),
                         statistics);
}

at::Tensor NormaliseAlone(const at::Tensor& x, const NormTensors& tensors,
                          const torch::nn::BatchNormOptions& options,
                          bool training) {
  double momentum = options.momentum().value_or(0);
  if (training && options.track_running_stats()) {
    at::Tensor batches = tensors.num_batches_tracked;
    batches.add_(1);
    if (!options.momentum().has_value()) {
      momentum = 1.0 / static_cast<double>(batches.item<int64_t>());
    }
  }
  return at::batch_norm(x, tensors.weight, tensors.bias, tensors.running_mean,
                        tensors.running_var,
                        training || !options.track_running_stats(), momentum,
                        options.eps(), at::globalContext().userEnabledCuDNN());
}

void TakeIn(const SharedStatistics& statistics,
            const torch::nn::BatchNormOptions& options, NormTensors tensors) {
  if (!options.track_running_stats()) return;
  UpdateRunningStatistics(statistics, options.momentum(), tensors.running_mean,
                          tensors.running_var, tensors.num_batches_tracked);
}

at::Tensor NoSamplesFor(const NormTensors& tensors,
                        const torch::nn::BatchNormOptions& options) {
  const at::Tensor& any =
      tensors.weight.defined() ? tensors.weight : tensors.running_mean;
  return at::empty({0, options.num_features()},
                   any.defined() ? any.options() : at::TensorOptions());
}

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
