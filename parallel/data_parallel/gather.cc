#include "parallel/data_parallel/gather.h"

#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>
#include <glog/logging.h>

#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

std::string NamesOf(const NamedTensors& tensors) {
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
        NamesOf(parts[0]), ", but replica ", i, " gave ", NamesOf(parts[i]),
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
