// Tensor data set: samples that lie in memory (torch.utils.data.TensorDataset).

#ifndef TANDEM_DATASETS_TENSOR_DATASET_H_
#define TANDEM_DATASETS_TENSOR_DATASET_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"

namespace tandem {

// A data set of `inputs` [n, ...], float32 values or int64 token numbers, and
// `targets` [n, ...], int64 class numbers in [0, classes), on the CPU. They are
// kept, not copied: do not write to them afterwards. InvalidArgument for
// others.
absl::StatusOr<std::unique_ptr<Dataset>> MakeTensorDataset(
    const at::Tensor& inputs, const at::Tensor& targets, int64_t classes);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TENSOR_DATASET_H_
