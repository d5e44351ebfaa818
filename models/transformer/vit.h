// Vision transformer (ViT; Dosovitskiy et al., 2010.11929): an image's patches
// as tokens, behind one for the class; pre-LayerNorm blocks, GELU, learned
// positions, no dropout. State names, shapes and initial values are
// torchvision's VisionTransformer's, but for encoder.class_token, which is
// class_token there.
//
// float images [n, in_channels, image_size, image_size] -> logits [n, classes].
// Layers: conv_proj (patches), encoder (class token and positions),
// encoder.layers.encoder_layer_0 ..., encoder.ln, heads.head.

#ifndef TANDEM_MODELS_TRANSFORMER_VIT_H_
#define TANDEM_MODELS_TRANSFORMER_VIT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

// Sizes of ViT-B/16, torchvision's vit_b_16.
struct VitOptions {
  int64_t image_size = 224;  // a multiple of patch_size
  int64_t patch_size = 16;
  int64_t in_channels = 3;
  int64_t layers = 12;
  int64_t heads = 12;  // divides `width`
  int64_t width = 768;
  int64_t ffn_width = 3072;
  int64_t classes = 1000;
};

// InvalidArgument for sizes below 1, and for those that do not divide as said.
absl::StatusOr<LayerSpecs> Vit(const VitOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_VIT_H_
