// Image options: what becomes of the images of a data set.

#ifndef TANDEM_DATASETS_IMAGES_IMAGE_OPTIONS_H_
#define TANDEM_DATASETS_IMAGES_IMAGE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// What becomes of images. Zeros and empty lists: as is usual of the data set.
struct ImageOptions {
  int64_t size = 0;    // height and width of inputs
  int64_t resize = 0;  // length of the shorter side before a crop
  // Changes of training images, in torchvision's words: random_resized_crop
  // (RandomResizedCrop(size)) or random_crop (RandomCrop(size, padding=4)), and
  // flip (RandomHorizontalFlip()).
  std::vector<std::string> augment;
  // Statistics of red, green and blue, on a scale from 0 to 1.
  std::vector<double> mean;
  std::vector<double> std;
};

// What is usual of photographs, as ImageNet's: 224 of 256, torchvision's mean
// and standard deviation; of CIFAR-10 and CIFAR-100: 32 of 32, and theirs.
ImageOptions ImageNetOptions();
ImageOptions Cifar10Options();
ImageOptions Cifar100Options();

// InvalidArgument, which begins with the field's name behind "image_" (but for
// "augment"), for sizes that are negative, more than 65536 or do not fit each
// other, augmentations that there are not, come twice or exclude each other,
// other than three means and deviations, deviations that are not above 0, and
// numbers that are not finite.
absl::Status CheckImageOptions(const ImageOptions& options);

// What `augment` may have.
inline constexpr char kRandomResizedCrop[] = "random_resized_crop";
inline constexpr char kRandomCrop[] = "random_crop";
inline constexpr char kFlip[] = "flip";

// Whether `options.augment` has it.
bool Augments(const ImageOptions& options, absl::string_view augmentation);

}  // namespace tandem

#endif  // TANDEM_DATASETS_IMAGES_IMAGE_OPTIONS_H_
