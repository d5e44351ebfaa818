#include "parallel/data_parallel/scatter_gather.h"

#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>
#include <glog/logging.h>

#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/tensors.h"
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

size_t CountParts(int64_t size, size_t devices) {
  if (size == 0) return 1;
  const auto most = static_cast<int64_t>(devices);
  const int64_t chunk = (size + most - 1) / most;
  return static_cast<size_t>((size + chunk - 1) / chunk);
}

// Into how many parts all are cut; no value: none is.
absl::StatusOr<std::optional<size_t>> CountParts(const NamedTensors& tensors,
                                                 size_t devices, int64_t dim) {
  std::optional<size_t> parts;
  const NamedTensors::value_type* first = nullptr;
  for (const auto& each : tensors) {
    if (!IsCut(each.second)) continue;
    TANDEM_RETURN_IF_ERROR(CheckDimension(each, dim));
    const size_t count = CountParts(each.second.size(dim), devices);
    if (first == nullptr) {
      first = &each;
      parts = count;
    }
    if (count == *parts) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "inputs are not cut alike over ", devices, " devices along dimension ",
        dim, ": ", first->first, ", ", DescribeTensor(first->second), ", into ",
        *parts, " parts, but ", each.first, ", ", DescribeTensor(each.second),
        ", into ", count, ": give tensors of the same batch"));
  }
  return parts;
}

}  // namespace

absl::StatusOr<ScatteredTensors> ScatterTensors(
    const NamedTensors& tensors, const std::vector<c10::Device>& devices,
    int64_t dim) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<size_t> cut,
                          CountParts(tensors, devices.size(), dim));
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

namespace {

std::string TensorNames(const NamedTensors& tensors) {
  if (tensors.empty()) return "no tensor";
  return absl::StrJoin(tensors, ", ", [](std::string* out, const auto& each) {
    out->append(each.first);
  });
}

absl::Status CheckAlike(const std::vector<NamedTensors>& parts) {
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.defined() == b.second.defined();
  };
  for (size_t i = 1; i < parts.size(); ++i) {
    if (absl::c_equal(parts[i], parts[0], same)) continue;
    const bool places = absl::c_equal(
        parts[i], parts[0],
        [](const auto& a, const auto& b) { return a.first == b.first; });
    return absl::InvalidArgumentError(absl::StrCat(
        "outputs of different kinds cannot be gathered: replica 0 gave ",
        TensorNames(parts[0]), ", but replica ", i, " gave ",
        TensorNames(parts[i]),
        places ? ", of which one is undefined in one of them alone" : ""));
  }
  return absl::OkStatus();
}

at::Tensor Join(const std::vector<at::Tensor>& pieces, c10::Device device,
                int64_t dim) {
  if (!pieces[0].defined()) return pieces[0];
  const bool scalars =
      absl::c_all_of(pieces, [](const auto& each) { return each.dim() == 0; });
  std::vector<at::Tensor> brought;
  for (const at::Tensor& each : pieces) {
    brought.push_back((scalars ? each.unsqueeze(0) : each).to(device));
  }
  if (brought.size() == 1) return brought[0];
  return at::cat(brought, scalars ? 0 : dim);
}

}  // namespace

absl::StatusOr<std::vector<at::Tensor>> GatherTensors(
    const std::vector<NamedTensors>& parts, c10::Device device, int64_t dim) {
  CHECK(!parts.empty());
  TANDEM_RETURN_IF_ERROR(CheckAlike(parts));
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < parts[0].size(); ++i) {
    std::vector<at::Tensor> pieces;
    for (const NamedTensors& part : parts) pieces.push_back(part[i].second);
    TANDEM_ASSIGN_OR_RETURN(
        at::Tensor joined,
        CatchTorchOr([&] { return Join(pieces, device, dim); },
                     absl::StrCat("gathering ", parts[0][i].first)));
    whole.push_back(std::move(joined));
  }
  return whole;
}

}  // namespace tandem
