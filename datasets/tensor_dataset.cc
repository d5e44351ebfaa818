#include "datasets/tensor_dataset.h"

#include <ATen/ops/tensor.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "datasets/dataset.h"

namespace tandem {
namespace {

class TensorDataset : public Dataset {
 public:
  TensorDataset(at::Tensor inputs, at::Tensor targets, int64_t classes)
      : inputs_(std::move(inputs)),
        targets_(std::move(targets)),
        classes_(classes) {}

  int64_t size() const override { return inputs_.size(0); }
  std::vector<int64_t> input_shape() const override {
    return inputs_.sizes().slice(1).vec();
  }
  bool tokens() const override { return inputs_.scalar_type() == at::kLong; }
  int64_t classes() const override { return classes_; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    TANDEM_RETURN_IF_ERROR(CheckIndices(indices, size()));
    const at::Tensor rows =
        at::tensor(c10::ArrayRef<int64_t>(indices.data(), indices.size()));
    Batch batch;
    batch.size = static_cast<int64_t>(indices.size());
    if (parts.inputs) batch.inputs = inputs_.index_select(0, rows);
    if (parts.targets) batch.targets = targets_.index_select(0, rows);
    return batch;
  }

 private:
  const at::Tensor inputs_;
  const at::Tensor targets_;
  const int64_t classes_;
};

std::string DtypeAndShape(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return absl::StrCat(DtypeName(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "] on ",
                      tensor.device().str());
}

bool AreSamples(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.dim() > 0;
}

bool Fit(const at::Tensor& inputs, const at::Tensor& targets) {
  return AreSamples(inputs) && AreSamples(targets) &&
         inputs.size(0) == targets.size(0) &&
         (inputs.scalar_type() == at::kFloat ||
          inputs.scalar_type() == at::kLong) &&
         targets.scalar_type() == at::kLong;
}

absl::Status CheckClasses(const at::Tensor& targets, int64_t classes) {
  if (targets.numel() == 0) return absl::OkStatus();
  const auto least = targets.min().item<int64_t>();
  const auto greatest = targets.max().item<int64_t>();
  if (least >= 0 && greatest < classes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("target ", least < 0 ? least : greatest,
                   ": expected class numbers from 0 to ", classes - 1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeTensorDataset(
    const at::Tensor& inputs, const at::Tensor& targets, int64_t classes) {
  if (!Fit(inputs, targets)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "inputs ", DtypeAndShape(inputs), " and targets ",
        DtypeAndShape(targets),
        ": expected float32 or int64 inputs [n, ...] and int64 targets "
        "[n, ...] on the CPU"));
  }
  TANDEM_RETURN_IF_ERROR(CheckClasses(targets, classes));
  return std::make_unique<TensorDataset>(inputs, targets, classes);
}

}  // namespace tandem
