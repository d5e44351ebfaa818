// Image transform: from decoded pixels to a network's input: resize, crop,
// random augmentation, and normalization.

#ifndef TANDEM_DATASETS_IMAGES_IMAGE_TRANSFORM_H_
#define TANDEM_DATASETS_IMAGES_IMAGE_TRANSFORM_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datasets/images/image_draws.h"
#include "datasets/images/image_options.h"

namespace tandem {

// A chain of torchvision's transforms:
//
// - Not augmented: Resize(resize), of the shorter side, CenterCrop(size).
// - random_resized_crop: RandomResizedCrop(size), of scale (0.08, 1) and ratio
//   (3/4, 4/3).
// - random_crop: Resize(resize), RandomCrop(size, padding=4), of zeros.
// - Then, with flip, RandomHorizontalFlip(); and ToTensor(),
//   Normalize(mean, std), computed in fp32.
//
// Resizing is bilinear with antialias, in fp32, rounded to bytes, as
// torchvision's Resize of tensors does. Draws are a function of the sample
// alone (ImageDraws), so that they are the same on any number of ranks and
// threads, and after a resume.
//
// Thread-safe.
class ImageTransform {
 public:
  // What `options` does not say is as in `usual`, which says all. If no
  // `resize` is given beside a `size`, it grows with it. `augment`: as
  // `options` says it, else not at all, for a test set. The errors of
  // CheckImageOptions.
  static absl::StatusOr<ImageTransform> Create(const ImageOptions& options,
                                               const ImageOptions& usual,
                                               bool augment);

  int64_t size() const { return size_; }
  // What red, green and blue are normalized by, on a scale from 0 to 1.
  const std::array<float, 3>& mean() const { return mean_; }
  const std::array<float, 3>& std() const { return std_; }

  // Writes float32 [3, size, size] to `input` of an image, uint8 [3, height,
  // width], which is no smaller than 1 x 1. InvalidArgument for one that is so
  // narrow that it would be too large when it is resized; LibTorch's exceptions
  // for memory that there is not.
  absl::Status Apply(const at::Tensor& image, const SampleInEpoch& of,
                     float* input) const;

 private:
  ImageTransform() = default;
  absl::Status CheckResized(int64_t height, int64_t width) const;
  at::Tensor Cropped(const at::Tensor& image, const SampleInEpoch& of) const;
  at::Tensor ResizedToShorterSide(const at::Tensor& image) const;
  at::Tensor CenterCrop(const at::Tensor& image) const;
  at::Tensor RandomCrop(const at::Tensor& image, ImageDraws draws) const;
  at::Tensor RandomResizedCrop(const at::Tensor& image, ImageDraws draws) const;

  int64_t size_ = 0;
  int64_t resize_ = 0;
  bool random_resized_crop_ = false;
  bool random_crop_ = false;
  bool flip_ = false;
  std::array<float, 3> mean_ = {};
  std::array<float, 3> std_ = {};
  // What becomes of each byte of a channel.
  std::array<std::array<float, 256>, 3> values_ = {};
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_IMAGES_IMAGE_TRANSFORM_H_
