#include "models/layers/batch_norm_2d.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

namespace tandem {
namespace {

// Momentum for the batch that is counted already. Without a momentum running
// statistics are means over all batches.
double EffectiveMomentum(const torch::nn::BatchNorm2dOptions& options,
                         const at::Tensor& num_batches_tracked) {
  const std::optional<double> momentum = options.momentum();
  if (momentum.has_value()) return *momentum;
  return 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>());
}

}  // namespace

at::Tensor BatchNorm2d::forward(const at::Tensor& x) {
  _check_input_dim(x);
  if (group_ != nullptr && is_training()) return Together(x);
  BatchNormArguments arguments;
  arguments.weight = weight;
  arguments.bias = bias;
  arguments.running_mean = running_mean;
  arguments.running_var = running_var;
  arguments.training = is_training();
  arguments.eps = options.eps();
  if (!arguments.training) return BatchNormFunction(x, arguments);
  const int64_t count = x.size(0) * x.size(2) * x.size(3);
  TORCH_CHECK(count != 1,
              "Expected more than 1 value per channel when training, got input "
              "size ",
              x.sizes());
  const Microbatch microbatch =
      MicrobatchScope::Current().value_or(Microbatch());
  if (microbatch.records != nullptr) {
    return Recorded(x, std::move(arguments), microbatch);
  }
  if (!microbatch.defers_statistics) {
    return Tracked(x, std::move(arguments), microbatch);
  }
  arguments.running_mean.reset();
  arguments.running_var.reset();
  BatchStatistics statistics;
  at::Tensor y = BatchNormFunction(x, arguments, &statistics);
  if (microbatch.is_recomputed) return y;
  Gather(microbatch, StatisticsPart(count, statistics));
  return y;
}

// The same operator when it is computed again: what it keeps for backward may
// stand in for what the first one has kept.
at::Tensor BatchNorm2d::Tracked(const at::Tensor& x,
                                BatchNormArguments arguments,
                                const Microbatch& microbatch) {
  if (microbatch.is_recomputed) {
    arguments.running_mean = running_mean.clone();
    arguments.running_var = running_var.clone();
  } else {
    num_batches_tracked += 1;
  }
  arguments.momentum = EffectiveMomentum(options, num_batches_tracked);
  return BatchNormFunction(x, arguments);
}

at::Tensor BatchNorm2d::Together(const at::Tensor& x) {
  const Microbatch microbatch =
      MicrobatchScope::Current().value_or(Microbatch());
  TORCH_CHECK_VALUE(microbatch.records == nullptr,
                    "BatchNorm's statistics can be shared (SyncBatchNorm), or "
                    "be recorded by microbatch, not both");
  const SharedStatistics statistics = group_->Share(x, *this);
  if (!microbatch.is_recomputed) TakeIn(statistics);
  return group_->Normalise(x, weight, bias, options.eps(), statistics);
}

void BatchNorm2d::TakeIn(const SharedStatistics& statistics) {
  const Microbatch microbatch =
      MicrobatchScope::Current().value_or(Microbatch());
  if (!microbatch.defers_statistics) {
    UpdateRunningStatistics(statistics, options.momentum(), running_mean,
                            running_var, num_batches_tracked);
    return;
  }
  GatheredStatistics part;
  part.count = statistics.count;
  if (part.count > 0) {
    part.mean = statistics.mean;
    part.squares = statistics.variance * static_cast<double>(part.count);
  }
  Gather(microbatch, part);
}

at::Tensor BatchNorm2d::NoSamples() const {
  return at::empty({0, options.num_features()}, running_mean.options());
}

RunningStatistics BatchNorm2d::running_statistics() const {
  TORCH_CHECK_VALUE(options.momentum().has_value(),
                    "BatchNorm's statistics can be recorded by microbatch with "
                    "a momentum alone; give it one");
  return {running_mean, running_var, num_batches_tracked, *options.momentum()};
}

// With a momentum of 1 the kernel leaves there what it would take in.
at::Tensor BatchNorm2d::Recorded(const at::Tensor& x,
                                 BatchNormArguments arguments,
                                 const Microbatch& microbatch) {
  TORCH_CHECK_VALUE(!microbatch.defers_statistics,
                    "BatchNorm's statistics can be those of the mini-batch "
                    "(deferred), or be recorded by microbatch, not both");
  const at::Tensor statistics =
      at::zeros({2, x.size(1)}, running_mean.options());
  arguments.running_mean = statistics.select(0, 0);
  arguments.running_var = statistics.select(0, 1);
  arguments.momentum = 1;
  at::Tensor y = BatchNormFunction(x, arguments);
  if (!microbatch.is_recomputed) {
    microbatch.records->Record(*this, microbatch.index, statistics);
  }
  return y;
}

// The kernel has gone over the microbatch already and has all that is needed.
GatheredStatistics BatchNorm2d::StatisticsPart(
    int64_t count, const BatchStatistics& statistics) const {
  const at::NoGradGuard no_grad;
  const at::Tensor squares = statistics.inverse_deviation.to(at::kDouble)
                                 .pow(-2)
                                 .sub(options.eps())
                                 .clamp_min(0)
                                 .mul(static_cast<double>(count));
  return {count, statistics.mean.to(at::kDouble), squares};
}

// Added up from the first microbatch to the last, whenever they come.
void BatchNorm2d::Gather(const Microbatch& microbatch,
                         const GatheredStatistics& part) {
  const at::NoGradGuard no_grad;
  // What a step left that ended half-way: another one has begun when it has
  // another number of microbatches, or one comes again.
  const bool begins =
      parts_.count != microbatch.count || parts_.of.count(microbatch.index) > 0;
  if (begins) parts_ = {microbatch.count, {}};
  parts_.of[microbatch.index] = part;
  if (static_cast<int>(parts_.of.size()) < microbatch.count) return;
  GatheredStatistics whole;
  for (const auto& each : parts_.of) Add(each.second, &whole);
  parts_ = {};
  Commit(whole);
}

void BatchNorm2d::Commit(const GatheredStatistics& whole) {
  if (whole.count == 0) return;
  UpdateRunningStatistics(
      whole.mean, whole.squares / static_cast<double>(whole.count - 1),
      options.momentum(), running_mean, running_var, num_batches_tracked);
}

}  // namespace tandem
