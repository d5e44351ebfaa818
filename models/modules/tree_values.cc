#include "models/modules/tree_values.h"

#include <glog/logging.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_tree.h"

namespace tandem {
namespace {

std::string Words(const std::vector<std::string>& paths) {
  if (paths.size() == 1 && paths[0].empty()) return "one tensor";
  if (paths.empty()) return "no tensor";
  return absl::StrCat("tensors at ", absl::StrJoin(paths, ", "));
}

}  // namespace

TreeForm::TreeForm()
    : skeleton_(at::Tensor()), defined_({true}), paths_({std::string()}) {}

absl::StatusOr<TreeForm> TreeForm::Of(const c10::IValue& tree) {
  TreeForm form;
  form.defined_.clear();
  form.paths_.clear();
  TANDEM_ASSIGN_OR_RETURN(
      form.skeleton_,
      MapTensors(tree, "",
                 [&](const at::Tensor& tensor,
                     const std::string& path) -> absl::StatusOr<at::Tensor> {
                   form.defined_.push_back(tensor.defined());
                   if (tensor.defined()) form.paths_.push_back(path);
                   return at::Tensor();
                 }));
  if (!form.paths_.empty()) return form;
  return absl::InvalidArgumentError("there is no defined tensor in it");
}

absl::StatusOr<std::vector<at::Tensor>> TreeForm::Take(
    const c10::IValue& tree) const {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> paths;
  std::vector<bool> defined;
  const auto take = [&](const at::Tensor& tensor,
                        const std::string& path) -> absl::StatusOr<at::Tensor> {
    defined.push_back(tensor.defined());
    if (!tensor.defined()) return tensor;
    tensors.push_back(tensor);
    paths.push_back(path);
    return tensor;
  };
  TANDEM_RETURN_IF_ERROR(MapTensors(tree, "", take).status());
  if (paths == paths_ && defined == defined_) return tensors;
  return absl::InvalidArgumentError(
      absl::StrCat(Words(paths), ", where ", Words(paths_), " should be"));
}

c10::IValue TreeForm::Build(const std::vector<at::Tensor>& tensors) const {
  CHECK_EQ(tensors.size(), paths_.size());
  size_t leaf = 0, next = 0;
  absl::StatusOr<c10::IValue> tree =
      MapTensors(skeleton_, "",
                 [&](const at::Tensor& none,
                     const std::string&) -> absl::StatusOr<at::Tensor> {
                   return defined_[leaf++] ? tensors[next++] : none;
                 });
  CHECK(tree.ok()) << tree.status();  // as the first time
  return *std::move(tree);
}

}  // namespace tandem
