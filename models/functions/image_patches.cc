#include "models/functions/image_patches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "core/device/host_memory.h"

namespace tandem {
namespace {

// Where a patch meets its image.
struct Tap {
  int64_t in_patch;  // row-major index in the kernel
  int64_t in_image;  // in elements from the channel's first
};

// The taps of the patch at (y, x) that lie within the image.
void FindTaps(const at::Tensor& images, const PatchShape& shape, int64_t y,
              int64_t x, std::vector<Tap>& taps) {
  taps.clear();
  for (int64_t ky = 0; ky < shape.kernel; ++ky) {
    const int64_t iy = y * shape.stride + ky - shape.padding;
    if (iy < 0 || iy >= images.size(2)) continue;
    for (int64_t kx = 0; kx < shape.kernel; ++kx) {
      const int64_t ix = x * shape.stride + kx - shape.padding;
      if (ix < 0 || ix >= images.size(3)) continue;
      taps.push_back({ky * shape.kernel + kx,
                      iy * images.stride(2) + ix * images.stride(3)});
    }
  }
}

// Calls visit(image, row, taps) for every patch. `taps` are the same for all
// images, so these come innermost.
template <typename Visit>
void ForEachPatch(const at::Tensor& images, const PatchShape& shape,
                  Visit visit) {
  const int64_t height = shape.OutputSize(images.size(2));
  const int64_t width = shape.OutputSize(images.size(3));
  std::vector<Tap> taps;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      FindTaps(images, shape, y, x, taps);
      for (int64_t n = 0; n < images.size(0); ++n) {
        visit(n, (n * height + y) * width + x, taps);
      }
    }
  }
}

// Calls visit(place in the rows, place in the images), in elements, for all
// that patches see of the images.
template <typename Visit>
void ForEachPlace(const at::Tensor& images, const PatchShape& shape,
                  Visit visit) {
  const int64_t channels = images.size(1);
  const int64_t area = shape.kernel * shape.kernel;
  ForEachPatch(images, shape,
               [&](int64_t n, int64_t row, const std::vector<Tap>& taps) {
                 int64_t in_images = n * images.stride(0);
                 int64_t in_rows = row * channels * area;
                 for (int64_t c = 0; c < channels; ++c) {
                   for (const Tap& tap : taps) {
                     visit(in_rows + tap.in_patch, in_images + tap.in_image);
                   }
                   in_images += images.stride(1);
                   in_rows += area;
                 }
               });
}

template <typename T>
void WritePatches(const at::Tensor& images, const PatchShape& shape,
                  const at::Tensor& rows) {
  const T* const from = images.const_data_ptr<T>();
  T* const to = rows.mutable_data_ptr<T>();
  ForEachPlace(images, shape, [&](int64_t in_rows, int64_t in_images) {
    to[in_rows] = from[in_images];
  });
}

template <typename T>
void AddPatches(const at::Tensor& rows, const PatchShape& shape,
                const at::Tensor& images) {
  const T* const from = rows.const_data_ptr<T>();
  float* const to = images.mutable_data_ptr<float>();
  ForEachPlace(images, shape, [&](int64_t in_rows, int64_t in_images) {
    to[in_images] += static_cast<float>(from[in_rows]);
  });
}

}  // namespace

at::Tensor PatchRows(const at::Tensor& images, const PatchShape& shape) {
  const int64_t places =
      shape.OutputSize(images.size(2)) * shape.OutputSize(images.size(3));
  // Places outside of the image stay zero.
  const at::Tensor rows = at::zeros(
      {images.size(0) * places, images.size(1) * shape.kernel * shape.kernel},
      images.options());
  const at::Tensor seen = HostView(images);
  if (seen.is_meta()) return rows;  // an imagined device has no values
  if (images.scalar_type() == at::kBFloat16) {
    WritePatches<c10::BFloat16>(seen, shape, HostView(rows));
  } else {
    WritePatches<float>(seen, shape, HostView(rows));
  }
  return rows;
}

at::Tensor SumPatchRows(const at::Tensor& rows, at::IntArrayRef sizes,
                        const PatchShape& shape, at::MemoryFormat format) {
  const at::Tensor images =
      at::empty(sizes, rows.options().dtype(at::kFloat), format).zero_();
  const at::Tensor seen = HostView(rows);
  if (seen.is_meta()) return images;
  if (rows.scalar_type() == at::kBFloat16) {
    AddPatches<c10::BFloat16>(seen, shape, HostView(images));
  } else {
    AddPatches<float>(seen, shape, HostView(images));
  }
  return images;
}

}  // namespace tandem
