#include "datasets/mnist.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/digest/crc32.h"
#include "datasets/dataset.h"
#include "datasets/idx.h"
#include "tools/cpp/runfiles/runfiles.h"

namespace tandem {
namespace {

constexpr int64_t kSide = 28;
constexpr int64_t kPixels = kSide * kSide;
constexpr int64_t kClasses = 10;

class Mnist : public Dataset {
 public:
  Mnist(IdxArray images, IdxArray labels, const PixelStatistics& pixels,
        absl::Span<const absl::string_view> classes)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        pixels_(pixels),
        class_names_(classes.begin(), classes.end()) {
    for (int byte = 0; byte < 256; ++byte) {
      values_[byte] =
          (static_cast<float>(byte) / 255.0f - pixels.mean) / pixels.std;
    }
  }

  int64_t size() const override { return labels_.sizes[0]; }
  std::vector<int64_t> input_shape() const override {
    return {1, kSide, kSide};
  }
  int64_t classes() const override { return kClasses; }
  std::string ClassName(int64_t number) const override {
    const auto index = static_cast<size_t>(number);
    return std::string(index < class_names_.size() ? class_names_[index] : "");
  }
  std::vector<PixelStatistics> pixels() const override { return {pixels_}; }
  std::string digest() const override {
    uint32_t checksum = 0;
    for (const IdxArray* each : {&images_, &labels_}) {
      checksum = Crc32(checksum, each->file.data(), each->file.size());
    }
    return absl::StrCat(absl::Hex(checksum, absl::kZeroPad8));
  }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    TANDEM_RETURN_IF_ERROR(CheckIndices(indices, size()));
    Batch batch;
    batch.size = indices.size();
    if (parts.inputs) batch.inputs = Inputs(indices);
    if (parts.targets) batch.targets = Targets(indices);
    return batch;
  }

 private:
  at::Tensor Inputs(absl::Span<const int64_t> indices) const {
    const int64_t count = indices.size();
    const at::Tensor inputs = at::empty({count, 1, kSide, kSide}, at::kFloat);
    float* input = inputs.mutable_data_ptr<float>();
    for (int64_t index : indices) {
      const uint8_t* image = images_.data() + index * kPixels;
      for (int64_t i = 0; i < kPixels; ++i) *input++ = values_[image[i]];
    }
    return inputs;
  }

  at::Tensor Targets(absl::Span<const int64_t> indices) const {
    const int64_t count = indices.size();
    const at::Tensor targets = at::empty({count}, at::kLong);
    int64_t* target = targets.mutable_data_ptr<int64_t>();
    for (int64_t index : indices) *target++ = labels_.data()[index];
    return targets;
  }

  const IdxArray images_;  // [n, 28, 28]
  const IdxArray labels_;  // [n]
  const PixelStatistics pixels_;
  const std::vector<absl::string_view> class_names_;
  std::array<float, 256> values_;  // what becomes of each byte
};

// `stem` or `stem`.gz in `folder`, whichever is there.
absl::StatusOr<std::string> FindFile(const std::string& folder,
                                     absl::string_view stem) {
  const std::string plain = absl::StrCat(folder, "/", stem);
  const std::string gz = plain + ".gz";
  if (access(plain.c_str(), F_OK) == 0) return plain;
  if (access(gz.c_str(), F_OK) == 0) return gz;
  return absl::NotFoundError(
      absl::StrCat("neither ", stem, " nor ", stem, ".gz is in '", folder,
                   "', which must be the folder of the four IDX files"));
}

absl::Status CheckMatch(const IdxArray& images, const std::string& images_path,
                        const IdxArray& labels,
                        const std::string& labels_path) {
  if (images.sizes[1] != kSide || images.sizes[2] != kSide) {
    return absl::DataLossError(
        absl::StrCat(images_path, ": images of ", images.sizes[1], " x ",
                     images.sizes[2], " pixels, expected 28 x 28"));
  }
  if (images.sizes[0] != labels.sizes[0]) {
    return absl::DataLossError(absl::StrCat(
        images_path, " has ", images.sizes[0], " images, but ", labels_path,
        " has ", labels.sizes[0], " labels: they are of different data sets"));
  }
  for (int64_t i = 0; i < labels.sizes[0]; ++i) {
    if (labels.data()[i] >= kClasses) {
      return absl::DataLossError(
          absl::StrCat(labels_path, ": label ", labels.data()[i], " of sample ",
                       i, ", expected 0 to ", kClasses - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenMnist(
    const std::string& folder, Split split, const PixelStatistics& pixels,
    absl::Span<const absl::string_view> classes) {
  const char* prefix = split == Split::kTrain ? "train" : "t10k";
  TANDEM_ASSIGN_OR_RETURN(
      const std::string images_path,
      FindFile(folder, absl::StrCat(prefix, "-images-idx3-ubyte")));
  TANDEM_ASSIGN_OR_RETURN(
      const std::string labels_path,
      FindFile(folder, absl::StrCat(prefix, "-labels-idx1-ubyte")));
  TANDEM_ASSIGN_OR_RETURN(IdxArray images, ReadIdx(images_path, 3));
  TANDEM_ASSIGN_OR_RETURN(IdxArray labels, ReadIdx(labels_path, 1));
  TANDEM_RETURN_IF_ERROR(CheckMatch(images, images_path, labels, labels_path));
  return std::make_unique<Mnist>(std::move(images), std::move(labels), pixels,
                                 classes);
}

absl::StatusOr<std::string> BundledFashionMnist() {
  using bazel::tools::cpp::runfiles::Runfiles;
  // argv[0] may be relative to a folder that was left since; this is not.
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) {
    return absl::InternalError("cannot tell where this program is");
  }
  std::string error;
  const std::unique_ptr<Runfiles> runfiles(Runfiles::Create(program, &error));
  if (runfiles != nullptr) {
    // A manifest of runfiles lists files, not folders.
    const std::string file = runfiles->Rlocation(
        "fashion_mnist/usr/share/datasets/fashion-mnist/"
        "train-images-idx3-ubyte.gz");
    if (access(file.c_str(), F_OK) == 0) {
      return file.substr(0, file.rfind('/'));
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "the Fashion-MNIST that comes with the program is not among the runfiles "
      "of ",
      program, "; start it with `bazel run`, or name a data_dir"));
}

}  // namespace tandem
