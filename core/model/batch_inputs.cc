#include "core/model/batch_inputs.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_tree.h"
#include "core/base/tensors.h"

namespace tandem {
namespace {

std::string Quoted(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  return absl::StrCat("'", absl::StrJoin(names, "', '"), "'");
}

std::vector<std::string> TensorNames(const Skips& tensors) {
  std::vector<std::string> names;
  for (const auto& each : tensors) names.push_back(each.first);
  return names;
}

// A reader and what it reads, for messages.
struct Reading {
  const char* who;         // "the model"
  const char* what;        // "input"
  const char* not_read;    // "no layer reads"
  const char* but_others;  // "they read"
};
constexpr Reading kInputs = {"the model", "input", "no layer reads",
                             "they read"};
constexpr Reading kTargets = {"the loss", "target", "the loss does not read",
                              "it reads"};

absl::Status CheckNames(const Skips& given,
                        const std::vector<std::string>& names,
                        const Reading& reading) {
  for (const std::string& name : names) {
    if (given.count(name) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        reading.who, " reads the further ", reading.what, " '", name,
        "', which the batch lacks; it has ", Quoted(TensorNames(given))));
  }
  for (const auto& each : given) {
    if (absl::c_linear_search(names, each.first)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the batch has the further ", reading.what, " '",
                     each.first, "', which ", reading.not_read, "; ",
                     reading.but_others, " ", Quoted(names)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Skips> CollectNamedTensors(
    const std::map<std::string, c10::IValue>& trees, int64_t size,
    const std::vector<std::string>& names, const Reading& reading) {
  Skips tensors;
  const auto add = [&](const at::Tensor& tensor,
                       const std::string& path) -> absl::StatusOr<at::Tensor> {
    if (!tensor.defined()) return tensor;
    TANDEM_RETURN_IF_ERROR(CheckSamples(tensor, size, path));
    tensors[path] = tensor;
    return tensor;
  };
  for (const auto& [name, tree] : trees) {
    TANDEM_RETURN_IF_ERROR(MapTensors(tree, name, add).status());
  }
  TANDEM_RETURN_IF_ERROR(CheckNames(tensors, names, reading));
  return tensors;
}

}  // namespace

absl::Status CheckSamples(const at::Tensor& tensor, int64_t size,
                          absl::string_view name) {
  if (tensor.dim() > 0 && tensor.size(0) == size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a batch of ", size, " samples has ", DescribeTensor(tensor),
                   " as '", name, "', whose dimension 0 does not count them"));
}

absl::StatusOr<Skips> NamedInputs(const Batch& batch,
                                  const std::vector<std::string>& names) {
  return CollectNamedTensors(batch.further_inputs, batch.size, names, kInputs);
}

absl::StatusOr<Skips> NamedTargets(const Batch& batch,
                                   const std::vector<std::string>& names) {
  return CollectNamedTensors(batch.further_targets, batch.size, names,
                             kTargets);
}

}  // namespace tandem
