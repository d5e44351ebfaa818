// Fused optimizer steps, element by element: what a kernel does with one
// parameter, for the host and for GPUs.
//
// The arithmetic is that of torch.optim's SGD, Adam (L2 weight decay) and AdamW
// (decoupled weight decay), in float32.

#ifndef TANDEM_CORE_CUDA_OPTIMIZER_ELEMENTS_H_
#define TANDEM_CORE_CUDA_OPTIMIZER_ELEMENTS_H_

#include <cmath>

#include "core/cuda/host_device.h"

namespace tandem {

struct FactorOptions {
  float inverse_scale = 1;  // of the loss: what gradients are multiplied by
  float max_norm = 0;       // to which they are clipped; 0: they are not
  // Gradients that are not finite have nothing done; else they go where
  // clipping takes them: to NaN or zero, as in PyTorch.
  bool skips_nonfinite = true;
};

// What a step multiplies gradients by, all told.
struct GradientFactor {
  float norm = 0;    // of the gradients of the loss itself
  float factor = 1;  // unscales and clips
  int skip = 0;      // not 0: a gradient is infinite or NaN, so nothing is done
};

// `sum` is that of the squares of the scaled gradients, which in float64 is
// finite if and only if all of them are: no square of a float32 overflows it.
// Clips as torch.nn.utils.clip_grad_norm_ does.
TANDEM_HOST_DEVICE inline GradientFactor FactorOf(
    double sum, const FactorOptions& options) {
  GradientFactor result;
  result.skip = options.skips_nonfinite && !(sum <= 1.7976931348623157e308);
  // In double to the end: what float cannot hold may be scaled, or clipped.
  const double norm = std::sqrt(sum) * options.inverse_scale;
  result.norm = static_cast<float>(norm);
  result.factor = options.inverse_scale;
  const auto most = static_cast<float>(options.max_norm / (norm + 1e-6));
  // A NaN is to stay one.
  if (options.max_norm > 0 && !(most >= 1)) result.factor *= most;
  return result;
}

struct SgdStep {
  float learning_rate = 0;
  float momentum = 0;
  float rest_of_dampening = 1;  // 1 - dampening, rounded once
  float weight_decay = 0;
  bool nesterov = false;
  bool is_first = false;  // the momentum buffer has nothing yet

  // What changes from step to step (StepTensors::numbers).
  TANDEM_HOST_DEVICE void Take(const float* numbers) {
    learning_rate = numbers[0];
  }

  // One state, with momentum: the momentum buffer.
  TANDEM_HOST_DEVICE void operator()(float grad, float& value, float& buffer,
                                     float&) const {
    grad += weight_decay * value;
    if (momentum != 0) {
      buffer = is_first ? grad : momentum * buffer + rest_of_dampening * grad;
      grad = nesterov ? grad + momentum * buffer : buffer;
    }
    value -= learning_rate * grad;
  }
};

struct AdamStep {
  float learning_rate = 0;
  // 1 - beta, rounded once: what float's own subtraction gives is off by
  // 1.3e-5 for 0.999, the same way in each step.
  float rest_of_beta1 = 1;
  float beta2 = 0;
  float rest_of_beta2 = 1;
  float eps = 0;
  float weight_decay = 0;
  bool decoupled = false;           // AdamW
  float bias_correction1 = 1;       // 1 - beta1^t, t counting from 1
  float bias_correction2_root = 1;  // sqrt(1 - beta2^t)

  // What changes from step to step (StepTensors::numbers).
  TANDEM_HOST_DEVICE void Take(const float* numbers) {
    learning_rate = numbers[0];
    bias_correction1 = numbers[1];
    bias_correction2_root = numbers[2];
  }

  // Two states: exp_avg and exp_avg_sq.
  TANDEM_HOST_DEVICE void operator()(float grad, float& value, float& average,
                                     float& average_of_squares) const {
    if (decoupled) {
      value -= learning_rate * weight_decay * value;
    } else {
      grad += weight_decay * value;
    }
    average += rest_of_beta1 * (grad - average);
    average_of_squares =
        beta2 * average_of_squares + rest_of_beta2 * grad * grad;
    const float root =
        std::sqrt(average_of_squares) / bias_correction2_root + eps;
    value -= learning_rate / bias_correction1 * average / root;
  }
};

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_OPTIMIZER_ELEMENTS_H_
