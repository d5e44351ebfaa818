#include "datasets/images/image_transform.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/image_codec/image_codec.h"

namespace tandem {
namespace {

constexpr int64_t kPadding = 4;

// torchvision's, and Pillow's with its rounding of sums in another place.
at::Tensor Resized(const at::Tensor& image, int64_t height, int64_t width) {
  if (image.size(1) == height && image.size(2) == width) return image;
  const at::Tensor values =
      image.to(at::kFloat, /*non_blocking=*/false, /*copy=*/false,
               at::MemoryFormat::Contiguous);
  return at::_upsample_bilinear2d_aa(values.unsqueeze(0), {height, width},
                                     /*align_corners=*/false)
      .squeeze(0)
      .round_()
      .to(at::kByte);
}

at::Tensor Window(const at::Tensor& image, int64_t top, int64_t left,
                  int64_t height, int64_t width) {
  return image.slice(1, top, top + height).slice(2, left, left + width);
}

// Half of what is left over, rounded as Python rounds.
int64_t Middle(int64_t whole, int64_t part) {
  return std::lrint(static_cast<double>(whole - part) / 2);
}

struct Extent {
  int64_t height = 0;
  int64_t width = 0;
};

// What RandomResizedCrop takes where it finds nothing in ten draws: the middle,
// of a ratio that is not too far from a square's.
Extent MiddleExtent(int64_t height, int64_t width, double least, double most) {
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < least) {
    return {std::lrint(static_cast<double>(width) / least), width};
  }
  if (ratio > most) {
    return {height, std::lrint(static_cast<double>(height) * most)};
  }
  return {height, width};
}

int64_t GivenOr(int64_t given, int64_t usual) {
  return given > 0 ? given : usual;
}

}  // namespace

absl::StatusOr<ImageTransform> ImageTransform::Create(
    const ImageOptions& options, const ImageOptions& usual, bool augment) {
  TANDEM_RETURN_IF_ERROR(CheckImageOptions(options));
  ImageTransform transform;
  transform.size_ = GivenOr(options.size, usual.size);
  transform.resize_ =
      GivenOr(options.resize, transform.size_ * usual.resize / usual.size);
  if (transform.resize_ < transform.size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image_resize=", transform.resize_, ": no crop of ", transform.size_,
        " pixels fits into that: give image_size as well"));
  }
  transform.random_resized_crop_ =
      augment && Augments(options, kRandomResizedCrop);
  transform.random_crop_ = augment && Augments(options, kRandomCrop);
  transform.flip_ = augment && Augments(options, kFlip);
  const std::vector<double>& mean =
      options.mean.empty() ? usual.mean : options.mean;
  const std::vector<double>& std =
      options.std.empty() ? usual.std : options.std;
  for (size_t channel = 0; channel < transform.values_.size(); ++channel) {
    transform.mean_[channel] = static_cast<float>(mean[channel]);
    transform.std_[channel] = static_cast<float>(std[channel]);
    for (int byte = 0; byte < 256; ++byte) {
      transform.values_[channel][static_cast<size_t>(byte)] =
          (static_cast<float>(byte) / 255.0f - transform.mean_[channel]) /
          transform.std_[channel];
    }
  }
  return transform;
}

absl::Status ImageTransform::Apply(const at::Tensor& image,
                                   const SampleInEpoch& of,
                                   float* input) const {
  TANDEM_RETURN_IF_ERROR(CheckResized(image.size(1), image.size(2)));
  at::Tensor pixels = Cropped(image, of);
  if (flip_ && ImageDraws(of, kFlip).Uniform() < 0.5) pixels = pixels.flip(2);
  pixels = pixels.contiguous();
  const uint8_t* byte = pixels.const_data_ptr<uint8_t>();
  for (const std::array<float, 256>& values : values_) {
    for (int64_t i = 0; i < size_ * size_; ++i) *input++ = values[*byte++];
  }
  return absl::OkStatus();
}

// A line of pixels, of which there are no more than any image may have, would
// become a band of very many.
absl::Status ImageTransform::CheckResized(int64_t height, int64_t width) const {
  if (random_resized_crop_) return absl::OkStatus();
  const int64_t longer =
      resize_ * std::max(height, width) / std::min(height, width);
  if (longer <= kMostImagePixels / resize_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("an image of ", width, " x ", height,
                   " pixels, whose shorter side is to "
                   "become ",
                   resize_, ", would then have more than ", kMostImagePixels,
                   ": cut it, or leave it out"));
}

at::Tensor ImageTransform::Cropped(const at::Tensor& image,
                                   const SampleInEpoch& of) const {
  if (random_resized_crop_) {
    return RandomResizedCrop(image, ImageDraws(of, kRandomResizedCrop));
  }
  const at::Tensor resized = ResizedToShorterSide(image);
  return random_crop_ ? RandomCrop(resized, ImageDraws(of, kRandomCrop))
                      : CenterCrop(resized);
}

at::Tensor ImageTransform::ResizedToShorterSide(const at::Tensor& image) const {
  const int64_t height = image.size(1);
  const int64_t width = image.size(2);
  return height <= width ? Resized(image, resize_, resize_ * width / height)
                         : Resized(image, resize_ * height / width, resize_);
}

at::Tensor ImageTransform::CenterCrop(const at::Tensor& image) const {
  return Window(image, Middle(image.size(1), size_),
                Middle(image.size(2), size_), size_, size_);
}

at::Tensor ImageTransform::RandomCrop(const at::Tensor& image,
                                      ImageDraws draws) const {
  const at::Tensor padded = at::constant_pad_nd(
      image, {kPadding, kPadding, kPadding, kPadding}, /*value=*/0);
  const int64_t top = draws.Below(padded.size(1) - size_ + 1);
  const int64_t left = draws.Below(padded.size(2) - size_ + 1);
  return Window(padded, top, left, size_, size_);
}

at::Tensor ImageTransform::RandomResizedCrop(const at::Tensor& image,
                                             ImageDraws draws) const {
  constexpr double kLeastRatio = 3.0 / 4.0;
  constexpr double kMostRatio = 4.0 / 3.0;
  constexpr double kLeastScale = 0.08;
  const int64_t height = image.size(1);
  const int64_t width = image.size(2);
  const double least = std::log(kLeastRatio);
  const double most = std::log(kMostRatio);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(height * width) *
                        (kLeastScale + (1 - kLeastScale) * draws.Uniform());
    const double ratio = std::exp(least + (most - least) * draws.Uniform());
    const Extent part = {std::lrint(std::sqrt(area / ratio)),
                         std::lrint(std::sqrt(area * ratio))};
    if (part.width < 1 || part.width > width || part.height < 1 ||
        part.height > height) {
      continue;
    }
    const int64_t top = draws.Below(height - part.height + 1);
    const int64_t left = draws.Below(width - part.width + 1);
    return Resized(Window(image, top, left, part.height, part.width), size_,
                   size_);
  }
  const Extent part = MiddleExtent(height, width, kLeastRatio, kMostRatio);
  const Extent held = {std::max<int64_t>(part.height, 1),
                       std::max<int64_t>(part.width, 1)};
  return Resized(Window(image, (height - held.height) / 2,
                        (width - held.width) / 2, held.height, held.width),
                 size_, size_);
}

}  // namespace tandem
