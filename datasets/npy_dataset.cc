#include "datasets/npy_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/digest/crc32.h"
#include "datasets/npy_file.h"

namespace tandem {
namespace {

// The arrays of one set.
struct Arrays {
  NpyFile x;
  NpyFile y;
};

bool IsWhole(const NpyFile& file) {
  return c10::isIntegralType(file.dtype(), /*includeBool=*/false);
}

// Bytes are pixels, or other values.
bool IsTokens(const NpyFile& x) {
  return IsWhole(x) && x.dtype() != c10::ScalarType::Byte;
}

int64_t RowElements(const NpyFile& file) {
  int64_t elements = 1;
  for (size_t i = 1; i < file.shape().size(); ++i) elements *= file.shape()[i];
  return elements;
}

std::string Description(const NpyFile& file) {
  return absl::StrCat(file.path(), " is ", DtypeName(file.dtype()), " [",
                      absl::StrJoin(file.shape(), ", "), "]");
}

class NpyDataset : public Dataset {
 public:
  NpyDataset(Arrays arrays, int64_t classes, uint32_t digest)
      : arrays_(std::move(arrays)),
        classes_(classes),
        digest_(absl::StrCat(absl::Hex(digest, absl::kZeroPad8))) {}

  int64_t size() const override { return arrays_.x.shape().front(); }
  std::vector<int64_t> input_shape() const override {
    const std::vector<int64_t>& shape = arrays_.x.shape();
    return {shape.begin() + 1, shape.end()};
  }
  bool tokens() const override { return IsTokens(arrays_.x); }
  int64_t classes() const override { return classes_; }
  // Inputs of bytes are the bytes.
  std::vector<PixelStatistics> pixels() const override {
    if (arrays_.x.dtype() != c10::ScalarType::Byte) return {};
    return {{/*mean=*/0, /*std=*/1 / 255.0f}};
  }
  std::string digest() const override { return digest_; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    TANDEM_RETURN_IF_ERROR(CheckIndices(indices, size()));
    Batch batch;
    batch.size = static_cast<int64_t>(indices.size());
    if (parts.inputs) {
      TANDEM_ASSIGN_OR_RETURN(batch.inputs,
                              tokens() ? Rows<int64_t>(arrays_.x, indices)
                                       : Rows<float>(arrays_.x, indices));
    }
    if (parts.targets) {
      TANDEM_ASSIGN_OR_RETURN(batch.targets, Rows<int64_t>(arrays_.y, indices));
    }
    return batch;
  }

 private:
  template <typename Element>
  absl::StatusOr<at::Tensor> Rows(const NpyFile& file,
                                  absl::Span<const int64_t> indices) const {
    std::vector<int64_t> shape = file.shape();
    shape.front() = static_cast<int64_t>(indices.size());
    const at::Tensor rows =
        at::empty(shape, c10::CppTypeToScalarType<Element>::value);
    auto* row = rows.mutable_data_ptr<Element>();
    const int64_t elements = RowElements(file);
    for (const int64_t index : indices) {
      TANDEM_RETURN_IF_ERROR(file.Read(index * elements, elements, row));
      if constexpr (std::is_same_v<Element, int64_t>) {
        TANDEM_RETURN_IF_ERROR(CheckRow(file, index, row, row + elements));
      }
      row += elements;
    }
    return rows;
  }

  absl::Status CheckRow(const NpyFile& file, int64_t index,
                        const int64_t* begin, const int64_t* end) const {
    for (const int64_t* each = begin; each != end; ++each) {
      if (*each >= 0 && *each < classes_) continue;
      return absl::DataLossError(absl::StrCat(
          file.path(), ": row ", index, " has ", *each,
          ", expected numbers from 0 to ", classes_ - 1,
          tokens() ? ": give the vocabulary that they are of" : ""));
    }
    return absl::OkStatus();
  }

  const Arrays arrays_;
  const int64_t classes_;
  const std::string digest_;
};

absl::Status CheckTargets(const Arrays& arrays) {
  const NpyFile& y = arrays.y;
  if (!IsWhole(y)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Description(y),
                     ": expected class numbers, whole ones: save "
                     "array.astype('int64')"));
  }
  const bool is_of_x = IsTokens(arrays.x) && y.shape() == arrays.x.shape();
  if (y.shape().size() == 1 || is_of_x) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      Description(y), ": expected a class number for each sample, [n]",
      IsTokens(arrays.x) ? ", or one for each token, of the inputs' shape" : "",
      ": save array.reshape(-1) if it is a column"));
}

absl::StatusOr<Arrays> OpenArrays(const std::string& folder, const char* set) {
  const std::string stem = absl::StrCat(folder, "/", set);
  TANDEM_ASSIGN_OR_RETURN(NpyFile x, NpyFile::Open(stem + "_x.npy"));
  TANDEM_ASSIGN_OR_RETURN(NpyFile y, NpyFile::Open(stem + "_y.npy"));
  Arrays arrays = {std::move(x), std::move(y)};
  if (arrays.x.shape().empty() || arrays.y.shape().empty() ||
      arrays.x.shape().front() != arrays.y.shape().front()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Description(arrays.x), " and ", Description(arrays.y),
                     ": expected as many rows in both, one for each sample"));
  }
  TANDEM_RETURN_IF_ERROR(CheckTargets(arrays));
  return arrays;
}

absl::Status CheckSameSamples(const Arrays& train, const Arrays& test) {
  const bool is_same =
      train.x.shape().size() == test.x.shape().size() &&
      std::equal(train.x.shape().begin() + 1, train.x.shape().end(),
                 test.x.shape().begin() + 1) &&
      train.y.shape().size() == test.y.shape().size() &&
      IsTokens(train.x) == IsTokens(test.x);
  if (is_same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      Description(train.x), " and ", Description(test.x), ", ",
      Description(train.y), " and ", Description(test.y),
      ": expected samples of one kind and shape to train on and to test on"));
}

// Raises `most` to the greatest number in the file. InvalidArgument for one
// below 0.
absl::Status FindGreatest(const NpyFile& file, int64_t* most) {
  constexpr int64_t kAtOnce = 1 << 16;
  std::vector<int64_t> values;
  for (int64_t first = 0; first < file.numel(); first += kAtOnce) {
    values.resize(static_cast<size_t>(std::min(kAtOnce, file.numel() - first)));
    TANDEM_RETURN_IF_ERROR(
        file.Read(first, static_cast<int64_t>(values.size()), values.data()));
    const auto [least, greatest] =
        std::minmax_element(values.begin(), values.end());
    if (*least < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path(), ": element ", first + (least - values.begin()), " is ",
          *least, ": expected numbers from 0 on"));
    }
    *most = std::max(*most, *greatest);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ClassCount(const NpyDatasetOptions& options,
                                   const Arrays& train, const Arrays& test) {
  const bool is_tokens = IsTokens(train.x);
  if (options.vocabulary > 0 && !is_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary ", options.vocabulary, ": ",
                     Description(train.x), ", which are no tokens (i4 or i8)"));
  }
  if (options.vocabulary > 0) return options.vocabulary;
  int64_t most = 0;
  for (const Arrays* each : {&train, &test}) {
    TANDEM_RETURN_IF_ERROR(FindGreatest(each->y, &most));
    if (is_tokens) TANDEM_RETURN_IF_ERROR(FindGreatest(each->x, &most));
  }
  constexpr int64_t kMostClasses = 1 << 24;
  if (most < kMostClasses) return most + 1;
  return absl::InvalidArgumentError(
      absl::StrCat(train.y.path(), ": with numbers up to ", most,
                   " there would be as many classes, but there can be ",
                   kMostClasses, " at most"));
}

absl::Status CheckNotEmpty(const Arrays& train) {
  if (train.x.numel() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      Description(train.x), ": there is nothing in it to train on"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenNpyDataset(
    const NpyDatasetOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(Arrays train, OpenArrays(options.folder, "train"));
  TANDEM_ASSIGN_OR_RETURN(Arrays test, OpenArrays(options.folder, "test"));
  TANDEM_RETURN_IF_ERROR(CheckNotEmpty(train));
  TANDEM_RETURN_IF_ERROR(CheckSameSamples(train, test));
  TANDEM_ASSIGN_OR_RETURN(const int64_t classes,
                          ClassCount(options, train, test));
  Arrays& arrays = options.split == Split::kTrain ? train : test;
  uint32_t digest = 0;
  for (const NpyFile* file : {&arrays.x, &arrays.y}) {
    TANDEM_ASSIGN_OR_RETURN(const uint32_t one, file->Digest());
    digest = Crc32(digest, &one, sizeof(one));
  }
  return std::make_unique<NpyDataset>(std::move(arrays), classes, digest);
}

}  // namespace tandem
