#include "datasets/input_pixels.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype_names.h"

namespace tandem {
namespace {

absl::Status CheckInput(const at::Tensor& input) {
  const bool is_image =
      input.defined() && input.device().is_cpu() &&
      input.scalar_type() == at::kFloat &&
      IsImageShape({input.sizes().data(), static_cast<size_t>(input.dim())});
  if (is_image) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot show ",
      !input.defined() ? "no tensor"
                       : absl::StrCat(DtypeName(input.scalar_type()), " [",
                                      absl::StrJoin(input.sizes(), ", "),
                                      "] on ", input.device().str()),
      " as an image: expected float32 [height, width] or [1 or 3, height, "
      "width] on the CPU"));
}

// With it the least of all values becomes 0 and the greatest 1.
PixelStatistics Stretched(const float* values, int64_t count) {
  const auto [least, greatest] = std::minmax_element(values, values + count);
  return {-*least / (*greatest - *least), 1 / (*greatest - *least)};
}

uint8_t Pixel(float value, const PixelStatistics& of) {
  const float scaled = std::round(255 * (value * of.std + of.mean));
  if (!(scaled > 0)) return 0;
  return static_cast<uint8_t>(std::min(scaled, 255.0f));
}

}  // namespace

bool IsImageShape(absl::Span<const int64_t> shape) {
  if (std::any_of(shape.begin(), shape.end(),
                  [](int64_t size) { return size < 1; })) {
    return false;
  }
  return shape.size() == 2 ||
         (shape.size() == 3 && (shape[0] == 1 || shape[0] == 3));
}

absl::StatusOr<at::Tensor> InputPixels(
    const at::Tensor& input, const std::vector<PixelStatistics>& pixels) {
  const absl::Status checked = CheckInput(input);
  if (!checked.ok()) return checked;
  const int64_t channels = input.dim() == 3 ? input.size(0) : 1;
  const auto given = static_cast<int64_t>(pixels.size());
  if (given > 1 && given != channels) {
    return absl::InvalidArgumentError(
        absl::StrCat("statistics of ", given, " channels were given for ",
                     channels, ": expected none, one or ", channels));
  }
  const at::Tensor values = input.contiguous();
  const auto* value = values.const_data_ptr<float>();
  const at::Tensor image =
      at::empty({channels, input.size(-2), input.size(-1)}, at::kByte);
  auto* byte = image.mutable_data_ptr<uint8_t>();
  const PixelStatistics all =
      given == 0 ? Stretched(value, values.numel()) : pixels.front();
  const int64_t area = values.numel() / channels;
  for (int64_t channel = 0; channel < channels; ++channel) {
    const PixelStatistics& of =
        given > 1 ? pixels[static_cast<size_t>(channel)] : all;
    for (int64_t i = 0; i < area; ++i) *byte++ = Pixel(*value++, of);
  }
  return image;
}

}  // namespace tandem
