#include "models/layers/batch_norm_2d.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

namespace tandem {
namespace {

// Of the batch that is counted already. Without a momentum running statistics
// are means over all batches.
double MomentumOf(const torch::nn::BatchNorm2dOptions& options,
                  const at::Tensor& num_batches_tracked) {
  const std::optional<double> momentum = options.momentum();
  if (momentum.has_value()) return *momentum;
  return 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>());
}

}  // namespace

at::Tensor BatchNorm2d::forward(const at::Tensor& x) {
  _check_input_dim(x);
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
  if (!microbatch.is_recomputed && microbatch.records != nullptr) {
    return Recorded(x, std::move(arguments), microbatch);
  }
  if (!microbatch.is_recomputed && !microbatch.defers_statistics) {
    num_batches_tracked += 1;
    arguments.momentum = MomentumOf(options, num_batches_tracked);
    return BatchNormFunction(x, arguments);
  }
  arguments.running_mean.reset();
  arguments.running_var.reset();
  BatchStatistics statistics;
  at::Tensor y = BatchNormFunction(x, arguments, &statistics);
  if (microbatch.is_recomputed) return y;
  Gather(microbatch, PartOf(count, statistics));
  return y;
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
  microbatch.records->Record(*this, microbatch.index, statistics);
  return y;
}

// The kernel has gone over the microbatch already and has all that is needed.
BatchNorm2d::Gathered BatchNorm2d::PartOf(
    int64_t count, const BatchStatistics& statistics) const {
  const at::NoGradGuard no_grad;
  const at::Tensor squares = statistics.inverse_deviation.to(at::kDouble)
                                 .pow(-2)
                                 .sub(options.eps())
                                 .clamp_min(0)
                                 .mul(static_cast<double>(count));
  return {count, statistics.mean.to(at::kDouble), squares};
}

// Chan, Golub, LeVeque: "Updating Formulae and a Pairwise Algorithm for
// Computing Sample Variances", 1979.
void BatchNorm2d::Add(const Gathered& part, Gathered* sum) {
  if (sum->count == 0) {
    *sum = {part.count, part.mean.clone(), part.squares.clone()};
    return;
  }
  const auto before = static_cast<double>(sum->count);
  const auto added = static_cast<double>(part.count);
  const double share = added / (before + added);
  const at::Tensor distance = part.mean - sum->mean;
  sum->mean += distance * share;
  sum->squares += part.squares + distance.square() * (before * share);
  sum->count += part.count;
}

// Added up from the first microbatch to the last, whenever they come.
void BatchNorm2d::Gather(const Microbatch& microbatch, const Gathered& part) {
  const at::NoGradGuard no_grad;
  // What a step left that ended half-way: another one has begun when it has
  // another number of microbatches, or one comes again.
  const bool begins =
      parts_.count != microbatch.count || parts_.of.count(microbatch.index) > 0;
  if (begins) parts_ = {microbatch.count, {}};
  parts_.of[microbatch.index] = part;
  if (static_cast<int>(parts_.of.size()) < microbatch.count) return;
  Gathered whole;
  for (const auto& each : parts_.of) Add(each.second, &whole);
  parts_ = {};
  Commit(whole);
}

void BatchNorm2d::Commit(const Gathered& whole) {
  const at::NoGradGuard no_grad;
  num_batches_tracked += 1;
  const double momentum = MomentumOf(options, num_batches_tracked);
  const at::Tensor variance =
      whole.squares / static_cast<double>(whole.count - 1);
  const auto take_in = [momentum](at::Tensor& running, const at::Tensor& now) {
    running.copy_(running.to(at::kDouble) * (1 - momentum) + now * momentum);
  };
  take_in(running_mean, whole.mean);
  take_in(running_var, variance);
}

}  // namespace tandem
