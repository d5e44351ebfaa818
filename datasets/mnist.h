// MNIST and Fashion-MNIST.

#ifndef TANDEM_DATASETS_MNIST_H_
#define TANDEM_DATASETS_MNIST_H_

#include <array>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "datasets/dataset.h"

namespace tandem {

// Pixels of the training images.
constexpr PixelStatistics kMnistPixels = {0.1307f, 0.3081f};
constexpr PixelStatistics kFashionMnistPixels = {0.2860f, 0.3530f};

// What Fashion-MNIST's class numbers mean.
constexpr std::array<absl::string_view, 10> kFashionMnistClasses = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

// Reads the split's two files from `folder`: train-images-idx3-ubyte and
// train-labels-idx1-ubyte, or t10k-..., each as it is or with ".gz".
//
// Inputs: float32 [n, 1, 28, 28], (byte / 255 - mean) / std, as torchvision's
// ToTensor and Normalize give. Targets: int64 [n], in [0, 10).
//
// `classes`: what the ten classes are called, in texts that outlive the data
// set; empty: they have no names but their numbers.
//
// Errors name the file: missing, damaged (see ReadIdx), images that are not
// 28 x 28, more labels than images or fewer, a label beyond 9.
absl::StatusOr<std::unique_ptr<Dataset>> OpenMnist(
    const std::string& folder, Split split, const PixelStatistics& pixels,
    absl::Span<const absl::string_view> classes = {});

// The folder of the Fashion-MNIST that comes with the program, among its
// runfiles. Found whether the program was started by `bazel run`, by
// `bazel test` or from bazel-bin.
absl::StatusOr<std::string> BundledFashionMnist();

}  // namespace tandem

#endif  // TANDEM_DATASETS_MNIST_H_
