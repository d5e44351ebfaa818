#include "datasets/targets_as_inputs.h"

#include <utility>

#include "core/base/status_macros.h"

namespace tandem {
namespace {

class WithTargets : public Dataset {
 public:
  WithTargets(std::shared_ptr<const Dataset> data, std::string name)
      : data_(std::move(data)), name_(std::move(name)) {}

  int64_t size() const override { return data_->size(); }
  std::vector<int64_t> input_shape() const override {
    return data_->input_shape();
  }
  bool tokens() const override { return data_->tokens(); }
  int64_t classes() const override { return data_->classes(); }
  std::string ClassName(int64_t number) const override {
    return data_->ClassName(number);
  }
  std::vector<PixelStatistics> pixels() const override {
    return data_->pixels();
  }
  std::string digest() const override { return data_->digest(); }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    return GetInEpoch(/*epoch=*/0, indices, parts);
  }

  absl::StatusOr<Batch> GetInEpoch(int64_t epoch,
                                   absl::Span<const int64_t> indices,
                                   const BatchParts& parts) const override {
    BatchParts asked = parts;
    asked.targets = parts.targets || parts.inputs;
    TANDEM_ASSIGN_OR_RETURN(Batch batch,
                            data_->GetInEpoch(epoch, indices, asked));
    if (parts.inputs) batch.further_inputs[name_] = batch.targets;
    if (!parts.targets) {
      batch.targets.reset();
      batch.further_targets.clear();
    }
    return batch;
  }

 private:
  const std::shared_ptr<const Dataset> data_;
  const std::string name_;
};

}  // namespace

std::shared_ptr<const Dataset> TargetsAsInputs(
    std::shared_ptr<const Dataset> data, const std::string& name) {
  return std::make_shared<WithTargets>(std::move(data), name);
}

}  // namespace tandem
