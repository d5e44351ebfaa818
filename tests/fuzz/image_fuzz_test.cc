// PNG and JPEG files (core/image_codec/image_codec.h).

#include "core/image_codec/image_codec.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMostPixels = 1 << 18;
  const auto image =
      tandem::DecodeImage(tandem::InputText(data, size), kMostPixels);
  if (!image.ok()) return 0;
  CHECK_EQ(image->dim(), 3);
  CHECK_EQ(image->size(0), 3);
  CHECK(image->numel() > 0 && image->numel() <= 3 * kMostPixels);
  const auto png = tandem::EncodePng(*image);
  CHECK(png.ok()) << png.status();
  const auto again = tandem::DecodeImage(*png);
  CHECK(again.ok() && again->equal(*image)) << again.status();
  return 0;
}
