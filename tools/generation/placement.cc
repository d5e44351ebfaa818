#include "tools/generation/placement.h"

#include <torch/nn/module.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/launch/launch.h"
#include "core/model/layer_list.h"
#include "tools/trainer/job/devices.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

absl::StatusOr<c10::ScalarType> DtypeOf(const std::string& name) {
  const std::map<std::string, c10::ScalarType> known = {
      {"fp32", c10::ScalarType::Float},
      {"bf16", c10::ScalarType::BFloat16},
      {"fp16", c10::ScalarType::Half},
      {"fp64", c10::ScalarType::Double}};
  const auto found = known.find(ShortDtypeName(name));
  if (found != known.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype=", name, ": expected fp32, bf16, fp16 or fp64"));
}

}  // namespace

absl::StatusOr<ModelPlacement> PlacementOf(const std::string& device,
                                           const std::string& dtype) {
  ModelPlacement placement;
  TANDEM_ASSIGN_OR_RETURN(placement.dtype, DtypeOf(dtype));
  TrainOptions options;
  options.devices.device = device;
  TANDEM_ASSIGN_OR_RETURN(const auto devices,
                          PrepareDevices(options, Launch()));
  placement.device = devices.front();
  return placement;
}

absl::Status Place(const ModelPlacement& placement, const LayerList& layers) {
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { layer.module->to(placement.dtype); },
                   absl::StrCat("the dtype of layer ", layer.name)));
  }
  return MoveLayers(layers, placement.device);
}

}  // namespace tandem
