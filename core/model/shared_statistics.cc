#include "core/model/shared_statistics.h"

#include <ATen/TensorOperators.h>

#include "core/model/gathered_statistics.h"

namespace tandem {

void UpdateRunningStatistics(const SharedStatistics& now,
                             std::optional<double> momentum,
                             at::Tensor& running_mean, at::Tensor& running_var,
                             at::Tensor& num_batches_tracked) {
  if (now.count == 0) return;
  const auto count = static_cast<double>(now.count);
  UpdateRunningStatistics(now.mean, now.variance * (count / (count - 1)),
                          momentum, running_mean, running_var,
                          num_batches_tracked);
}

}  // namespace tandem
