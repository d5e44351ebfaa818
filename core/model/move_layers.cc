#include "core/model/move_layers.h"

#include <torch/nn/module.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"

namespace tandem {

absl::Status MoveLayers(const LayerList& layers, c10::Device device) {
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { layer.module->to(device); },
                   absl::StrCat("moving layer ", layer.name)));
  }
  return absl::OkStatus();
}

}  // namespace tandem
