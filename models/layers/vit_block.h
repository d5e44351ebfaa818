// Vision transformer blocks: the layers that only ViT has (models/transformer/
// vit.h). Initial values are torchvision's.

#ifndef TANDEM_MODELS_LAYERS_VIT_BLOCK_H_
#define TANDEM_MODELS_LAYERS_VIT_BLOCK_H_

#include <cstdint>
#include <string>

#include "core/model/layer.h"

namespace tandem {

constexpr double kVitEps = 1e-6;  // of its LayerNorms

// nn.Conv2d whose kernels are patches, beside each other.
// [n, channels, height, width] -> [n, out_width, height / patch, width / patch]
LayerSpec VitPatches(const std::string& name, int64_t channels, int64_t patch,
                     int64_t width);

// Patches as tokens, behind a class token, with learned positions. State names:
// class_token, pos_embedding. [n, width, rows, columns] of so many patches ->
// [n, 1 + patches, width]
LayerSpec VitPositions(const std::string& name, int64_t patches, int64_t width);

struct VitBlockShape {
  int64_t width = 1;
  int64_t ffn_width = 1;
  int64_t heads = 1;  // divides the width
};

// x + self_attention(ln_1(x)), then x + mlp(ln_2(x)). State names: ln_1.*,
// self_attention.in_proj_{weight,bias}, self_attention.out_proj.*, ln_2.*,
// mlp.0.*, mlp.3.*. [n, tokens, width] -> [n, tokens, width]. Making it throws
// c10::ValueError where heads do not divide the width.
LayerSpec VitBlock(const std::string& name, const VitBlockShape& shape);

// nn.Linear of the class token; zero at first, as in the paper.
// [n, tokens, width] -> [n, classes]
LayerSpec VitHead(const std::string& name, int64_t width, int64_t classes);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_VIT_BLOCK_H_
