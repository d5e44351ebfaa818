#include "core/tensorboard/summary.h"

#include <climits>
#include <cstddef>
#include <optional>
#include <protozero/pbf_builder.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/base/utf8.h"
#include "core/tensorboard/histogram.h"

namespace tandem {
namespace {

// Fields of the messages, by their numbers in TensorFlow's and TensorBoard's
// summary.proto, histogram.proto, tensor.proto and tensor_shape.proto
// (tensorboard/compat/proto).

enum class SummaryField : protozero::pbf_tag_type { kValue = 1 };

enum class ValueField : protozero::pbf_tag_type {
  kTag = 1,
  kSimpleValue = 2,
  kImage = 4,
  kHisto = 5,
  kTensor = 8,
  kMetadata = 9,
};

enum class ImageField : protozero::pbf_tag_type {
  kHeight = 1,
  kWidth = 2,
  kColorspace = 3,
  kEncodedImageString = 4,
};

enum class HistogramField : protozero::pbf_tag_type {
  kMin = 1,
  kMax = 2,
  kNum = 3,
  kSum = 4,
  kSumSquares = 5,
  kBucketLimit = 6,
  kBucket = 7,
};

enum class MetadataField : protozero::pbf_tag_type { kPluginData = 1 };
enum class PluginField : protozero::pbf_tag_type { kPluginName = 1 };

enum class TensorField : protozero::pbf_tag_type {
  kDtype = 1,
  kTensorShape = 2,
  kStringVal = 8,
};
enum class ShapeField : protozero::pbf_tag_type { kDim = 2 };
enum class DimField : protozero::pbf_tag_type { kSize = 1 };

constexpr int32_t kDtString = 7;  // DT_STRING of types.proto

template <typename Field>
using Builder = protozero::pbf_builder<Field>;

protozero::data_view View(absl::string_view text) {
  return {text.data(), text.size()};
}

absl::Status Refused(absl::string_view tag, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("TensorBoard's tag \"", Printable(tag), "\" ", why));
}

absl::Status CheckTag(absl::string_view tag) {
  if (tag.empty()) return Refused(tag, "is empty: give it a name");
  if (absl::StrContains(tag, '\0')) {
    return Refused(tag, "has a zero byte: leave it out");
  }
  if (!IsUtf8(tag)) return Refused(tag, "is no UTF-8: give it in UTF-8");
  return absl::OkStatus();
}

// Size in pixels, and numbers that each pixel has once palettes are read.
struct PngHeader {
  uint32_t width = 0;
  uint32_t height = 0;
  int32_t channels = 0;
};

uint32_t BigEndian(absl::string_view bytes) {
  uint32_t number = 0;
  for (const char each : bytes)
    number = number << 8 | static_cast<uint8_t>(each);
  return number;
}

// Channels of PNG's colour types (its specification, 11.2.1); 0: there is no
// such type.
int32_t ChannelCount(char colour_type) {
  switch (colour_type) {
    case 0:
      return 1;  // greyscale
    case 2:
      return 3;  // RGB
    case 3:
      return 3;  // a palette of RGB
    case 4:
      return 2;  // greyscale with alpha
    case 6:
      return 4;  // RGB with alpha
    default:
      return 0;
  }
}

// Nothing where the file is no PNG.
std::optional<PngHeader> ReadPngHeader(absl::string_view png) {
  constexpr size_t kHeaderBytes = 33;  // signature, and the chunk IHDR
  constexpr char kBegin[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
  const absl::string_view begin(kBegin, sizeof(kBegin) - 1);
  if (png.size() < kHeaderBytes || !absl::StartsWith(png, begin)) {
    return std::nullopt;
  }
  PngHeader header;
  header.width = BigEndian(png.substr(begin.size(), 4));
  header.height = BigEndian(png.substr(begin.size() + 4, 4));
  header.channels = ChannelCount(png[begin.size() + 9]);
  if (header.channels == 0) return std::nullopt;
  return header;
}

std::string HistogramMessage(const Histogram& histogram) {
  std::string message;
  Builder<HistogramField> proto(message);
  proto.add_double(HistogramField::kMin, histogram.min);
  proto.add_double(HistogramField::kMax, histogram.max);
  proto.add_double(HistogramField::kNum, static_cast<double>(histogram.count));
  proto.add_double(HistogramField::kSum, histogram.sum);
  proto.add_double(HistogramField::kSumSquares, histogram.sum_of_squares);
  proto.add_packed_double(HistogramField::kBucketLimit,
                          histogram.limits.begin(), histogram.limits.end());
  proto.add_packed_double(HistogramField::kBucket, histogram.counts.begin(),
                          histogram.counts.end());
  return message;
}

}  // namespace

// `value`: the fields behind the tag, serialized.
absl::Status Summary::AddValue(absl::string_view tag, absl::string_view value) {
  TANDEM_RETURN_IF_ERROR(CheckTag(tag));
  // What reads messages takes no longer ones.
  constexpr size_t kMostBytes = INT_MAX / 2;
  if (tag.size() + value.size() + message_.size() > kMostBytes) {
    return Refused(tag, "brings a step to more than 1 GiB: give less");
  }
  std::string fields;
  Builder<ValueField>(fields).add_string(ValueField::kTag, View(tag));
  fields.append(value.data(), value.size());
  Builder<SummaryField>(message_).add_message(SummaryField::kValue, fields);
  return absl::OkStatus();
}

absl::Status Summary::AddScalar(absl::string_view tag, double value) {
  std::string message;
  Builder<ValueField>(message).add_float(ValueField::kSimpleValue,
                                         static_cast<float>(value));
  return AddValue(tag, message);
}

absl::Status Summary::AddText(absl::string_view tag,
                              absl::string_view markdown) {
  TANDEM_RETURN_IF_ERROR(CheckTag(tag));
  if (!IsUtf8(markdown)) {
    return Refused(tag, "was given a text that is no UTF-8: give it in UTF-8");
  }
  std::string message;
  Builder<ValueField> value(message);
  {
    Builder<TensorField> tensor(value, ValueField::kTensor);
    tensor.add_enum(TensorField::kDtype, kDtString);
    {
      Builder<ShapeField> shape(tensor, TensorField::kTensorShape);
      Builder<DimField> dim(shape, ShapeField::kDim);
      dim.add_int64(DimField::kSize, 1);
    }
    tensor.add_bytes(TensorField::kStringVal, View(markdown));
  }
  {
    Builder<MetadataField> metadata(value, ValueField::kMetadata);
    Builder<PluginField> plugin(metadata, MetadataField::kPluginData);
    plugin.add_string(PluginField::kPluginName, "text");
  }
  return AddValue(tag, message);
}

absl::Status Summary::AddHistogram(absl::string_view tag,
                                   const at::Tensor& values) {
  TANDEM_RETURN_IF_ERROR(CheckTag(tag));
  const absl::StatusOr<Histogram> histogram = ValueHistogram(values);
  if (!histogram.ok()) {
    return Annotate(histogram.status(),
                    absl::StrCat("TensorBoard's tag \"", Printable(tag), "\""));
  }
  return AddHistogram(tag, *histogram);
}

absl::Status Summary::AddHistogram(absl::string_view tag,
                                   const Histogram& histogram) {
  TANDEM_RETURN_IF_ERROR(CheckTag(tag));
  if (histogram.count > 0) {
    std::string message;
    Builder<ValueField>(message).add_message(ValueField::kHisto,
                                             HistogramMessage(histogram));
    TANDEM_RETURN_IF_ERROR(AddValue(tag, message));
  }
  if (histogram.nonfinite == 0) return absl::OkStatus();
  return AddScalar(absl::StrCat(tag, "/nonfinite"),
                   static_cast<double>(histogram.nonfinite));
}

absl::Status Summary::AddImage(absl::string_view tag, absl::string_view png,
                               int64_t height, int64_t width) {
  TANDEM_RETURN_IF_ERROR(CheckTag(tag));
  const std::optional<PngHeader> header = ReadPngHeader(png);
  if (!header) return Refused(tag, "was given an image that is no PNG");
  if (header->height != height || header->width != width) {
    return Refused(
        tag, absl::StrCat("was given an image of ", header->height, " x ",
                          header->width, " pixels (height x width) as one of ",
                          height, " x ", width));
  }
  std::string message;
  Builder<ValueField> value(message);
  {
    Builder<ImageField> image(value, ValueField::kImage);
    image.add_int32(ImageField::kHeight, static_cast<int32_t>(height));
    image.add_int32(ImageField::kWidth, static_cast<int32_t>(width));
    image.add_int32(ImageField::kColorspace, header->channels);
    image.add_bytes(ImageField::kEncodedImageString, View(png));
  }
  return AddValue(tag, message);
}

}  // namespace tandem
