#include "models/mlp.h"

#include "absl/strings/str_cat.h"
#include "models/layers/basic_layers.h"

namespace tandem {

LayerSpecs Mlp(const MlpOptions& options) {
  LayerSpecs specs = {FlattenLayer("flatten")};
  int64_t features = options.inputs;
  for (int64_t i = 1; i < options.linear_layers; ++i) {
    specs.push_back(
        LinearLayer(absl::StrCat("fc", i), features, options.width));
    specs.push_back(ReluLayer(absl::StrCat("relu", i)));
    features = options.width;
  }
  specs.push_back(LinearLayer(absl::StrCat("fc", options.linear_layers),
                              features, options.classes));
  return specs;
}

LayerSpecs MlpSmall(int64_t inputs, int64_t classes) {
  return Mlp({inputs, /*linear_layers=*/8, /*width=*/64, classes});
}

LayerSpecs MlpWide(int64_t inputs, int64_t classes) {
  return Mlp({inputs, /*linear_layers=*/3, /*width=*/2048, classes});
}

LayerSpecs MlpDeep(int64_t inputs, int64_t classes) {
  return Mlp({inputs, /*linear_layers=*/16, /*width=*/512, classes});
}

}  // namespace tandem
