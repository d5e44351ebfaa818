#include "tools/trainer/job/optimizer.h"

namespace tandem {
namespace {

// Both kinds have the same.
template <typename Options>
Options AdamOptionsOf(const TrainOptions& options, double weight_decay) {
  Options adam;
  adam.beta1 = options.adam_beta1;
  adam.beta2 = options.adam_beta2;
  adam.eps = options.adam_eps;
  adam.weight_decay = weight_decay;
  adam.amsgrad = options.amsgrad;
  return adam;
}

}  // namespace

OptimizerOptions OptimizerOptionsOf(const TrainOptions& options,
                                    double weight_decay) {
  if (options.optimizer == "sgd") {
    SgdOptions sgd;
    sgd.momentum = options.momentum;
    sgd.nesterov = options.nesterov;
    sgd.weight_decay = weight_decay;
    return sgd;
  }
  if (options.optimizer == "adam") {
    return AdamOptionsOf<AdamOptions>(options, weight_decay);
  }
  return AdamOptionsOf<AdamWOptions>(options, weight_decay);
}

}  // namespace tandem
