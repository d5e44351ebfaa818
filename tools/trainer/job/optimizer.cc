#include "tools/trainer/job/optimizer.h"

namespace tandem {

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
    AdamOptions adam;
    adam.weight_decay = weight_decay;
    adam.amsgrad = options.amsgrad;
    return adam;
  }
  AdamWOptions adamw;
  adamw.weight_decay = weight_decay;
  adamw.amsgrad = options.amsgrad;
  return adamw;
}

}  // namespace tandem
