#include "parallel/data_parallel/scatter.h"

#include <ATen/Tensor.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/describe_tensor.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

bool IsCut(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() > 0;
}

absl::Status CheckDimension(const NamedTensors::value_type& tensor,
                            int64_t dim) {
  const int64_t rank = tensor.second.dim();
  if (-rank <= dim && dim < rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(tensor.first, " is ", DescribeTensor(tensor.second),
                   " and cannot be cut along dimension ", dim,
                   ": give one that has it, or "
                   "another `dim`"));
}

size_t PartsOf(int64_t size, size_t devices) {
  if (size == 0) return 1;
  const auto most = static_cast<int64_t>(devices);
  const int64_t chunk = (size + most - 1) / most;
  return static_cast<size_t>((size + chunk - 1) / chunk);
}

// Into how many parts all are cut; no value: none is.
absl::StatusOr<std::optional<size_t>> PartsOf(const NamedTensors& tensors,
                                              size_t devices, int64_t dim) {
  std::optional<size_t> parts;
  const NamedTensors::value_type* first = nullptr;
  for (const auto& each : tensors) {
    if (!IsCut(each.second)) continue;
    TANDEM_RETURN_IF_ERROR(CheckDimension(each, dim));
    const size_t its = PartsOf(each.second.size(dim), devices);
    if (first == nullptr) {
      first = &each;
      parts = its;
    }
    if (its == *parts) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "inputs are not cut alike over ", devices, " devices along dimension ",
        dim, ": ", first->first, ", ", DescribeTensor(first->second), ", into ",
        *parts, " parts, but ", each.first, ", ", DescribeTensor(each.second),
        ", into ", its, ": give tensors of the same batch"));
  }
  return parts;
}

}  // namespace

absl::StatusOr<ScatteredTensors> ScatterTensors(
    const NamedTensors& tensors, const std::vector<c10::Device>& devices,
    int64_t dim) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<size_t> cut,
                          PartsOf(tensors, devices.size(), dim));
  const size_t count = cut.value_or(devices.size());
  ScatteredTensors scattered;
  scattered.parts.resize(count);
  const auto scatter = [&](const at::Tensor& tensor) {
    const bool is_cut = IsCut(tensor);
    const std::vector<at::Tensor> chunks =
        is_cut && count > 1
            ? tensor.chunk(static_cast<int64_t>(devices.size()), dim)
            : std::vector<at::Tensor>(count, tensor);
    const bool counts = is_cut && scattered.rows.empty();
    int64_t row = 0;
    for (size_t i = 0; i < count; ++i) {
      const at::Tensor& chunk = chunks[i];
      scattered.parts[i].push_back(chunk.defined() ? chunk.to(devices[i])
                                                   : chunk);
      if (!counts) continue;
      scattered.first_rows.push_back(row);
      scattered.rows.push_back(chunk.size(dim));
      row += scattered.rows.back();
    }
  };
  for (const auto& [name, tensor] : tensors) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&, &each = tensor] { scatter(each); },
                                      absl::StrCat("scattering ", name)));
  }
  scattered.first_rows.resize(count);
  scattered.rows.resize(count);
  return scattered;
}

}  // namespace tandem
