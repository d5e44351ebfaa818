// Gather: what the devices made of their parts of a batch, as one.
// (torch.nn.parallel.gather.)

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_GATHER_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_GATHER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

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

// `value` with all of its tensors on `device`. Throws LibTorch's exceptions.
template <typename T>
T MovedTo(c10::Device device, T value) {
  VisitTensors(value, "", [&](at::Tensor& tensor, const std::string&) {
    if (tensor.defined()) tensor = tensor.to(device);
  });
  return value;
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_GATHER_H_
