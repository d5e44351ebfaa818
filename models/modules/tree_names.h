// Names of the tensors of trees, as layers, batches and losses know them.

#ifndef TANDEM_MODELS_MODULES_TREE_NAMES_H_
#define TANDEM_MODELS_MODULES_TREE_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "models/modules/tree_form.h"

namespace tandem {

inline constexpr char kInputTree[] = "input";
inline constexpr char kOutputTree[] = "output";
inline constexpr char kTargetTree[] = "target";

// Of the tensors behind the first one, which has no name: it is what goes from
// layer to layer, a batch's `inputs` or `targets`, a loss's `outputs`.
// "output[1]", "output['mask']".
inline std::vector<std::string> FurtherNames(const TreeForm& form,
                                             const std::string& tree) {
  std::vector<std::string> names;
  for (size_t i = 1; i < form.paths().size(); ++i) {
    names.push_back(tree + form.paths()[i]);
  }
  return names;
}

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_TREE_NAMES_H_
