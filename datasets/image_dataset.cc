#include "datasets/image_dataset.h"

#include <ATen/ops/empty.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/serial_operators.h"

namespace tandem {
namespace {

constexpr int64_t kChannels = 3;

class ImageDataset : public Dataset {
 public:
  ImageDataset(std::unique_ptr<const ImageSource> source,
               const ImageTransform& transform, uint64_t seed)
      : source_(std::move(source)), transform_(transform), seed_(seed) {}

  int64_t size() const override { return source_->size(); }
  std::vector<int64_t> input_shape() const override {
    return {kChannels, transform_.size(), transform_.size()};
  }
  int64_t classes() const override { return source_->classes(); }
  std::string ClassName(int64_t number) const override {
    return source_->ClassName(number);
  }
  std::vector<PixelStatistics> pixels() const override {
    std::vector<PixelStatistics> pixels;
    for (size_t i = 0; i < transform_.mean().size(); ++i) {
      pixels.push_back({transform_.mean()[i], transform_.std()[i]});
    }
    return pixels;
  }
  std::string digest() const override { return source_->digest(); }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    return GetInEpoch(/*epoch=*/0, indices, parts);
  }

  absl::StatusOr<Batch> GetInEpoch(int64_t epoch,
                                   absl::Span<const int64_t> indices,
                                   const BatchParts& parts) const override {
    TANDEM_RETURN_IF_ERROR(CheckIndices(indices, size()));
    Batch batch;
    batch.size = static_cast<int64_t>(indices.size());
    if (parts.inputs) {
      TANDEM_ASSIGN_OR_RETURN(batch.inputs, Inputs(epoch, indices));
    }
    if (parts.targets) batch.targets = Targets(indices);
    return batch;
  }

 private:
  absl::StatusOr<at::Tensor> Inputs(int64_t epoch,
                                    absl::Span<const int64_t> indices) const {
    const int64_t side = transform_.size();
    const at::Tensor inputs =
        at::empty({static_cast<int64_t>(indices.size()), kChannels, side, side},
                  at::kFloat);
    auto* input = inputs.mutable_data_ptr<float>();
    const SerialOperators serial;  // beside other workers, and training
    for (const int64_t index : indices) {
      TANDEM_RETURN_IF_ERROR(
          CatchTorch([&] { return Read(epoch, index, input); },
                     absl::StrCat("sample ", index)));
      input += kChannels * side * side;
    }
    return inputs;
  }

  absl::Status Read(int64_t epoch, int64_t index, float* input) const {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor image, source_->Image(index));
    return CatchTorch(
        [&] {
          return transform_.Apply(image, {seed_, epoch, index}, input);
        },
        source_->ImageName(index));
  }

  at::Tensor Targets(absl::Span<const int64_t> indices) const {
    const at::Tensor targets =
        at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
    auto* target = targets.mutable_data_ptr<int64_t>();
    for (const int64_t index : indices) *target++ = source_->ClassNumber(index);
    return targets;
  }

  const std::unique_ptr<const ImageSource> source_;
  const ImageTransform transform_;
  const uint64_t seed_;
};

}  // namespace

std::unique_ptr<Dataset> MakeImageDataset(
    std::unique_ptr<const ImageSource> source, const ImageTransform& transform,
    uint64_t seed) {
  return std::make_unique<ImageDataset>(std::move(source), transform, seed);
}

}  // namespace tandem
