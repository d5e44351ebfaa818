#include "core/model/training_modes.h"

#include <torch/nn/module.h>

namespace tandem {

TrainingModes::TrainingModes(const LayerList& layers) {
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    layers_.push_back(layer.module);
    Look(layer.module, /*is_below=*/false);
  }
}

void TrainingModes::Look(const std::shared_ptr<Module>& module, bool is_below) {
  const bool trains = module->is_training();
  any_trains_ = any_trains_ || trains;
  const bool keeps = is_below || !trains;
  if (keeps) kept_.push_back({module, trains});
  for (const std::shared_ptr<Module>& child : module->children()) {
    Look(child, keeps);
  }
}

// A module's train() reaches all that is below.
void TrainingModes::Set(bool on) const {
  for (const std::shared_ptr<Module>& each : layers_) each->train(on);
  if (!on) return;
  for (const auto& [module, trains] : kept_) {
    if (module->is_training() != trains) module->train(trains);
  }
}

}  // namespace tandem
