// Layer checks: whether layers that are a module's children compute what the
// module's own forward does.

#ifndef TANDEM_MODELS_MODULES_LAYER_CHECKS_H_
#define TANDEM_MODELS_MODULES_LAYER_CHECKS_H_

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/modules/module_call.h"
#include "models/modules/module_paths.h"

namespace tandem {

// The seed of what modules draw on an example.
constexpr uint64_t kSeedOfExample = 0;

// The same tree of copies: a module may write to what it is given.
absl::StatusOr<c10::IValue> CopyOfTree(const c10::IValue& tree);

// InvalidArgument where `own`, the module's forward, gives something else for
// `example` than the layers did, one after the other, with the same draws. A
// forward that fails on the example (one that is not meant to be called) is
// logged.
absl::Status CheckAgainstOwnForward(const torch::nn::Module& module,
                                    const ModuleCall& own,
                                    const c10::IValue& example,
                                    const c10::IValue& of_layers);

// Where there is no example to compare on: logs, by name, what looks as if the
// forward did more than call the layers.
void WarnOfUnlikelyLayers(const torch::nn::Module& module,
                          const std::vector<ModuleAtPath>& layers);

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_LAYER_CHECKS_H_
