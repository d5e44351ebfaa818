#include "core/image_codec/image_codec.h"

#include <ATen/core/Tensor.h>

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/files/regular_file.h"
#include "core/image_codec/jpeg.h"
#include "core/image_codec/png.h"

namespace tandem {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{256} << 20;
constexpr absl::string_view kPng("\x89PNG\r\n\x1a\n", 8);
constexpr absl::string_view kJpeg("\xff\xd8\xff", 3);

struct Kind {
  absl::string_view begin;
  const char* name;
};

// What is called .png or .jpg by mistake.
constexpr Kind kOthers[] = {
    {"GIF8", "GIF"},
    {"BM", "BMP"},
    {"RIFF", "WebP"},
    {"II*", "TIFF"},
    {"MM", "TIFF"},
    {"<", "HTML, XML or SVG"},
    {"%PDF", "PDF"},
    {"PK\x03\x04", "a zip archive"},
    {"version https://git-lfs", "a pointer of Git LFS"},
};

absl::Status NeitherOfThem(absl::string_view bytes) {
  if (bytes.empty()) {
    return absl::InvalidArgumentError(
        "neither PNG nor JPEG, but empty: it has no byte");
  }
  for (const Kind& kind : kOthers) {
    if (absl::StartsWith(bytes, kind.begin)) {
      return absl::InvalidArgumentError(
          absl::StrCat("neither PNG nor JPEG, but ", kind.name,
                       " by its first bytes: convert it, or leave it out"));
    }
  }
  return absl::InvalidArgumentError(
      "neither PNG nor JPEG by its first bytes: convert it, or leave it out");
}

absl::StatusOr<at::Tensor> DecodedPixels(absl::string_view bytes,
                                         int64_t most_pixels) {
  if (absl::StartsWith(bytes, kPng)) return DecodePng(bytes, most_pixels);
  if (absl::StartsWith(bytes, kJpeg)) return DecodeJpeg(bytes, most_pixels);
  return NeitherOfThem(bytes);
}

bool IsImage(const at::Tensor& pixels) {
  for (const int64_t size : pixels.sizes()) {
    if (size < 1 || size > std::numeric_limits<int32_t>::max()) return false;
  }
  const int64_t channels = pixels.size(2);
  return channels == 1 || channels == 3 || channels == 4;
}

absl::Status NoImage(const at::Tensor& image, ImageLayout layout) {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot write ",
      !image.defined() ? "no tensor"
                       : absl::StrCat(DtypeName(image.scalar_type()), " [",
                                      absl::StrJoin(image.sizes(), ", "),
                                      "] on ", image.device().str()),
      " as PNG: expected uint8 on the CPU, ",
      layout == ImageLayout::kChw ? "[1, 3 or 4, height, width]"
                                  : "[height, width, 1, 3 or 4]"));
}

}  // namespace

absl::StatusOr<at::Tensor> DecodeImage(absl::string_view bytes,
                                       int64_t most_pixels) {
  return CatchTorchOr([&]() -> absl::StatusOr<at::Tensor> {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor pixels,
                            DecodedPixels(bytes, most_pixels));
    return pixels.permute({2, 0, 1});
  });
}

absl::StatusOr<at::Tensor> DecodeImageFile(const std::string& path,
                                           int64_t most_pixels) {
  TANDEM_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadShortFile(path, kMostFileBytes));
  absl::StatusOr<at::Tensor> image = DecodeImage(bytes, most_pixels);
  if (!image.ok()) return Annotate(image.status(), path);
  return image;
}

absl::StatusOr<std::string> EncodePng(const at::Tensor& image,
                                      ImageLayout layout) {
  if (!image.defined() || image.dim() != 3 || !image.device().is_cpu() ||
      image.scalar_type() != at::kByte) {
    return NoImage(image, layout);
  }
  return CatchTorchOr([&]() -> absl::StatusOr<std::string> {
    const at::Tensor pixels =
        layout == ImageLayout::kChw ? image.permute({1, 2, 0}) : image;
    if (!IsImage(pixels)) return NoImage(image, layout);
    return PngBytes(pixels.contiguous());
  });
}

}  // namespace tandem
