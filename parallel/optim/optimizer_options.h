// Optimizer options, under PyTorch's names and with its defaults; the learning
// rate comes with each step.

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_OPTIONS_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/variant.h"

namespace tandem {

// Options of torch.optim.SGD.
struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// Options of torch.optim.Adam.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  bool amsgrad = false;     // divides by the greatest mean square so far
};

// Options of torch.optim.AdamW.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // taken from the parameter itself
  bool amsgrad = false;
};

using OptimizerOptions = absl::variant<SgdOptions, AdamOptions, AdamWOptions>;

// Whether replicas share an optimizer's work and state
// (parallel/sharding/optimizer_sharding.h).
enum class OptimizerSharding {
  kOff,
  kAuto,  // where it is faster
  kOn,
};

// Checks of options, with one wording for all. InvalidArgument, naming the
// option and its value, unless 0 <= value < inf.
absl::Status CheckNotNegative(absl::string_view option, double value);

// InvalidArgument unless value > 0; infinity is.
absl::Status CheckPositive(absl::string_view option, double value);

// InvalidArgument unless 0 <= value < 1.
absl::Status CheckBelowOne(absl::string_view option, double value);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_OPTIONS_H_
