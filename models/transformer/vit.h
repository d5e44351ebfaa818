// Vision transformer (ViT; Dosovitskiy et al., 2010.11929): an image's patches
// as tokens, behind one for the class; pre-LayerNorm blocks, GELU, learned
// positions, no dropout. State names, shapes and initial values are
// torchvision's VisionTransformer's, but for encoder.class_token, which is
// class_token there.
//
// float images [n, in_channels, image_size, image_size] -> logits [n, classes].
// Layers: conv_proj (patches), encoder (class token and positions),
// encoder.layers.encoder_layer_0 ..., encoder.ln, heads.head.
//
// Made in a TensorParallelScope (core/model/axis/tensor_parallel.h) blocks are
// divided by heads and by their MLP's inner width, and a degree that does not
// divide those is refused by c10::ValueError where layers are made. Patches and
// head are computed alike on all ranks. With sequence parallelism the last
// ranks have fewer tokens where the degree does not divide them.

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
