// Gathered batch statistics: mean and variance of a normalising layer's values,
// put together from parts (microbatches, ranks), and what running statistics
// take in of them.

#ifndef TANDEM_CORE_MODEL_GATHERED_STATISTICS_H_
#define TANDEM_CORE_MODEL_GATHERED_STATISTICS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tandem {

// Tensors are [channels], double; undefined where there are no values.
struct GatheredStatistics {
  int64_t count = 0;  // values a channel
  at::Tensor mean;
  at::Tensor squares;  // of the distances from the mean, their sum
};

// Chan, Golub, LeVeque: "Updating Formulae and a Pairwise Algorithm for
// Computing Sample Variances", 1979. The bits depend on the order of parts.
void Add(const GatheredStatistics& part, GatheredStatistics* sum);

// running = (1 - momentum) * running + momentum * now; a mean over all batches
// without a momentum (PyTorch's BatchNorm). Counts the batch. Computed in
// double.
void UpdateRunningStatistics(const at::Tensor& mean,
                             const at::Tensor& unbiased_variance,
                             std::optional<double> momentum,
                             at::Tensor& running_mean, at::Tensor& running_var,
                             at::Tensor& num_batches_tracked);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_GATHERED_STATISTICS_H_
