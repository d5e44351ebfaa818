// Module paths: which modules within a module are its layers, by patterns of
// their names.

#ifndef TANDEM_MODELS_MODULES_MODULE_PATHS_H_
#define TANDEM_MODELS_MODULES_MODULE_PATHS_H_

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct ModuleAtPath {
  std::string path;  // "blocks.0", as in the names of its parameters
  std::shared_ptr<torch::nn::Module> module;
  // The module that has registered it.
  std::shared_ptr<torch::nn::Module> parent;
};

// Patterns are names of modules, as PyTorch writes them ("encoder.norm"), with
// "*" for all children of one, in the order in which they were registered
// ("blocks.*"). One that begins with "!" says that a module is not called.
//
// The modules come in the order of the patterns. InvalidArgument, with the
// names, for a pattern that matches nothing; a module that is matched twice,
// or within another; one that is not matched, unless "!" says so of one
// without parameters; a parameter of a module around the matched ones; and a
// parameter that two matched modules have.
absl::StatusOr<std::vector<ModuleAtPath>> ModulesAt(
    const std::shared_ptr<torch::nn::Module>& root,
    const std::vector<std::string>& patterns);

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_MODULE_PATHS_H_
