// Image source: images of classes, undecoded or decoded, by number.

#ifndef TANDEM_DATASETS_IMAGES_IMAGE_SOURCE_H_
#define TANDEM_DATASETS_IMAGES_IMAGE_SOURCE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// Thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  // Dataset::ClassName.
  virtual std::string ClassName(int64_t number) const { return ""; }

  // What tells these images from others: Dataset::digest.
  virtual std::string digest() const = 0;

  // For `index`, in [0, size): what errors call it, such as its path.
  virtual std::string ImageName(int64_t index) const = 0;
  // Its class, in [0, classes).
  virtual int64_t ClassNumber(int64_t index) const = 0;
  // Its pixels: uint8 [3, height, width], perhaps in the source's own memory.
  // Errors name the file.
  virtual absl::StatusOr<at::Tensor> Image(int64_t index) const = 0;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_IMAGES_IMAGE_SOURCE_H_
