#include "core/model/low_precision_reads.h"

#include <torch/nn/module.h>

#include <map>

namespace tandem {

std::set<std::string> LowPrecisionParameters(const LayerList& layers) {
  std::map<const void*, int> owners;
  std::map<std::string, const void*> found;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_modules(layer.name)) {
      const torch::nn::Module& module = *item.value();
      const auto own = module.named_parameters(/*recurse=*/false);
      for (const auto& each : own) ++owners[each.value().unsafeGetTensorImpl()];
      const auto* const reads = dynamic_cast<const ReadsLowPrecision*>(&module);
      if (reads == nullptr) continue;
      for (const std::string& name : reads->low_precision_parameters()) {
        found[item.key() + "." + name] = own[name].unsafeGetTensorImpl();
      }
    }
  }
  std::set<std::string> names;
  for (const auto& [name, parameter] : found) {
    if (owners[parameter] == 1) names.insert(name);
  }
  return names;
}

}  // namespace tandem
