// Training modes: which modules of some layers train when the layers do.

#ifndef TANDEM_CORE_MODEL_TRAINING_MODES_H_
#define TANDEM_CORE_MODEL_TRAINING_MODES_H_

#include <memory>
#include <vector>

#include "core/model/layer.h"

namespace tandem {

// torch::nn::Module::train for all layers, but that modules that were in
// evaluation mode when this was made stay in it: BatchNorm that is frozen
// normalises by the statistics that it has and moves none. Not thread-safe.
class TrainingModes {
 public:
  explicit TrainingModes(const LayerList& layers);

  // On: each module's own mode; off: evaluation.
  void Set(bool on) const;

  // Are there modules, all of them in evaluation mode?
  bool NoneTrains() const { return !layers_.empty() && !any_trains_; }

 private:
  using Module = torch::nn::Module;
  struct Mode {
    std::shared_ptr<Module> module;
    bool trains;
  };

  void Look(const std::shared_ptr<Module>& module, bool is_below);

  std::vector<std::shared_ptr<Module>> layers_;
  bool any_trains_ = false;
  std::vector<Mode> kept_;  // of frozen ones and all below; parents come first
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_TRAINING_MODES_H_
