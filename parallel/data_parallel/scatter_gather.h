// Scatter and gather: a batch cut along one dimension, a part for each device,
// and what the devices made of their parts, as one.
// (torch.nn.parallel.scatter_gather.)

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_SCATTER_GATHER_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_SCATTER_GATHER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/base/status_macros.h"
#include "parallel/data_parallel/tensor_fields.h"

namespace tandem {

struct ScatteredTensors {
  std::vector<std::vector<at::Tensor>> parts;  // [part][tensor], on its device
  // Which rows of the first tensor that was cut a part has; none was: zeros.
  std::vector<int64_t> first_rows;
  std::vector<int64_t> rows;
};

// Cuts each tensor as torch.chunk does: parts of ceil(size / devices) along
// `dim`, the last one smaller, and so fewer parts than devices where the batch
// is small: 5 samples for 4 devices make parts of 2, 2 and 1. An empty batch
// makes one part (PyTorch: an empty one for each device). Scalars and undefined
// tensors go to every part. Without any tensor that is cut there are as many
// parts as devices.
//
// Differentiable. Throws nothing; errors are InvalidArgument, naming the
// tensor, for one that has no dimension `dim`, and for tensors that make
// different numbers of parts (PyTorch takes the smallest and drops the rest
// unsaid), and LibTorch's.
absl::StatusOr<ScatteredTensors> ScatterTensors(
    const NamedTensors& tensors, const std::vector<c10::Device>& devices,
    int64_t dim);

// The same of the tensors within a value: a value for each part. What is no
// tensor is copied.
template <typename T>
absl::StatusOr<std::vector<T>> Scatter(const T& value,
                                       const std::vector<c10::Device>& devices,
                                       int64_t dim = 0) {
  TANDEM_ASSIGN_OR_RETURN(
      const ScatteredTensors scattered,
      ScatterTensors(TensorsOf(value, "input"), devices, dim));
  std::vector<T> values(scattered.parts.size(), value);
  for (size_t i = 0; i < values.size(); ++i) {
    ReplaceTensors(values[i], scattered.parts[i]);
  }
  return values;
}

// Tensor i of all parts, on `device`, one behind the other along `dim`. Scalars
// become a vector, one number a part, as PyTorch does it. A tensor that is
// undefined in all parts is undefined.
//
// Differentiable. InvalidArgument, naming the tensor and the part, where parts
// have tensors at different places, and where one is defined in some parts
// alone; and LibTorch's errors (other sizes). Requires a part.
absl::StatusOr<std::vector<at::Tensor>> GatherTensors(
    const std::vector<NamedTensors>& parts, c10::Device device, int64_t dim);

// The same of the tensors within values. What is no tensor is the first
// value's.
template <typename T>
absl::StatusOr<T> Gather(std::vector<T> values, c10::Device device,
                         int64_t dim = 0) {
  std::vector<NamedTensors> parts;
  for (const T& each : values) parts.push_back(TensorsOf(each, "output"));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> whole,
                          GatherTensors(parts, device, dim));
  T result = std::move(values.front());
  ReplaceTensors(result, whole);
  return result;
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_SCATTER_GATHER_H_
