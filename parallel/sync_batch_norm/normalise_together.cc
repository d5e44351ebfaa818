#include "parallel/sync_batch_norm/normalise_together.h"

#include <ATen/Context.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "core/model/microbatch_scope.h"

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

}  // namespace tandem
