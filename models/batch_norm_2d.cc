#include "models/batch_norm_2d.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

namespace tandem {

at::Tensor BatchNorm2d::forward(const at::Tensor& x) {
  _check_input_dim(x);
  BatchNormArguments arguments;
  arguments.weight = weight;
  arguments.bias = bias;
  arguments.running_mean = running_mean;
  arguments.running_var = running_var;
  arguments.training = is_training();
  arguments.momentum = *options.momentum();
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
    return BatchNormFunction(x, arguments);
  }
  arguments.running_mean.reset();
  arguments.running_var.reset();
  BatchStatistics statistics;
  at::Tensor y = BatchNormFunction(x, arguments, &statistics);
  if (microbatch.is_recomputed) return y;
  if (microbatch.index == 0) gathered_ = Gathered();
  Gather(count, statistics);
  if (microbatch.index + 1 == microbatch.count) Commit();
  return y;
}

RunningStatistics BatchNorm2d::running_statistics() const {
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

// Chan, Golub, LeVeque: "Updating Formulae and a Pairwise Algorithm for
// Computing Sample Variances", 1979. The kernel has gone over the batch already
// and has all that is needed.
void BatchNorm2d::Gather(int64_t count, const BatchStatistics& statistics) {
  const at::NoGradGuard no_grad;
  const at::Tensor mean = statistics.mean.to(at::kDouble);
  const at::Tensor squares = statistics.inverse_deviation.to(at::kDouble)
                                 .pow(-2)
                                 .sub(options.eps())
                                 .clamp_min(0)
                                 .mul(static_cast<double>(count));
  if (gathered_.count == 0) {
    gathered_ = {count, mean, squares};
    return;
  }
  const auto before = static_cast<double>(gathered_.count);
  const auto added = static_cast<double>(count);
  const double share = added / (before + added);
  const at::Tensor distance = mean - gathered_.mean;
  gathered_.mean += distance * share;
  gathered_.squares += squares + distance.square() * (before * share);
  gathered_.count += count;
}

void BatchNorm2d::Commit() {
  const at::NoGradGuard no_grad;
  const double momentum = *options.momentum();
  const at::Tensor variance =
      gathered_.squares / static_cast<double>(gathered_.count - 1);
  const auto take_in = [momentum](at::Tensor& running, const at::Tensor& now) {
    running.copy_(running.to(at::kDouble) * (1 - momentum) + now * momentum);
  };
  take_in(running_mean, gathered_.mean);
  take_in(running_var, variance);
  num_batches_tracked += 1;
  gathered_ = Gathered();
}

}  // namespace tandem
