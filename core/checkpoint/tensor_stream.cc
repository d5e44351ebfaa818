#include "core/checkpoint/tensor_stream.h"

#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <sstream>
#include <utility>

#include "core/base/status_macros.h"

namespace tandem {

TensorInfo MakeTensorInfo(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    return {name, c10::ScalarType::Undefined, {}};
  }
  return {name, tensor.scalar_type(), tensor.sizes().vec()};
}

std::string Describe(const TensorInfo& info) {
  if (info.dtype == c10::ScalarType::Undefined) return "nothing";
  std::ostringstream out;
  out << info.dtype << " " << c10::IntArrayRef(info.sizes);
  return out.str();
}

absl::Status StreamTensors(const NamedTensors& tensors, TensorSink& sink) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back(MakeTensorInfo(name, tensor));
  }
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sink.ComesBefore(infos[a], infos[b]);
  });
  std::vector<TensorInfo> sorted;
  for (size_t i : order) sorted.push_back(std::move(infos[i]));
  TANDEM_RETURN_IF_ERROR(sink.Begin(std::move(sorted)));
  for (size_t i : order) TANDEM_RETURN_IF_ERROR(sink.Add(tensors[i].second));
  return absl::OkStatus();
}

}  // namespace tandem
