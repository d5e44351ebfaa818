#include "models/transformer/vit.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "models/layers/basic_layers.h"
#include "models/layers/vit_block.h"

namespace tandem {
namespace {

absl::Status Check(const VitOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"image_size", options.image_size},
      {"patch_size", options.patch_size},
      {"in_channels", options.in_channels},
      {"layers", options.layers},
      {"heads", options.heads},
      {"width", options.width},
      {"ffn_width", options.ffn_width},
      {"classes", options.classes}};
  for (const auto& [name, size] : sizes) {
    if (size >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a ViT of ", name, " ", size, ": expected 1 or more"));
  }
  if (options.image_size % options.patch_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ViT of image_size ", options.image_size,
                     " and patch_size ", options.patch_size,
                     ": images are cut into whole patches, so this must "
                     "divide that"));
  }
  if (options.width % options.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a ViT of width ", options.width, " and ", options.heads,
      " heads: each has a part of the width, so heads must divide it"));
}

}  // namespace

absl::StatusOr<LayerSpecs> Vit(const VitOptions& options) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  const int64_t side = options.image_size / options.patch_size;
  LayerSpecs specs = {VitPatches("conv_proj", options.in_channels,
                                 options.patch_size, options.width),
                      VitPositions("encoder", side * side, options.width)};
  for (int64_t i = 0; i < options.layers; ++i) {
    specs.push_back(
        VitBlock(absl::StrCat("encoder.layers.encoder_layer_", i),
                 {options.width, options.ffn_width, options.heads}));
  }
  specs.push_back(LayerNormLayer("encoder.ln", options.width, kVitEps));
  specs.push_back(VitHead("heads.head", options.width, options.classes));
  return specs;
}

}  // namespace tandem
