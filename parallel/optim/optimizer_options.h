// Optimizer options, under PyTorch's names and with its defaults; the learning
// rate comes with each step.

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_OPTIONS_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_OPTIONS_H_

#include <array>
#include <cstdint>

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

// What Muon multiplies the learning rate by, for a matrix of so many rows and
// columns (torch.optim.Muon's adjust_lr_fn).
enum class MuonAdjustment {
  kOriginal,       // sqrt(max(1, rows / columns))
  kMatchRmsAdamW,  // 0.2 sqrt(max(rows, columns)): steps as large as AdamW's
  kSpectralUnclamped,  // sqrt(rows / columns)
};

// Options of torch.optim.Muon.
struct MuonOptions {
  double momentum = 0.95;
  double weight_decay = 0.1;  // taken from the parameter itself
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;  // the least norm that a matrix is divided by
  int64_t ns_steps = 5;
  MuonAdjustment adjust_lr = MuonAdjustment::kOriginal;
  // Muon's own learning rate, in parts of the step's, which is for other groups
  // of parameters as well.
  double learning_rate_factor = 1;
};

using OptimizerOptions =
    absl::variant<SgdOptions, AdamOptions, AdamWOptions, MuonOptions>;

// What replicas share among them, of what they train (ZeRO's stages).
enum class Sharding {
  kOff,
  kAuto,        // kOptimizer where it is faster, else kOff
  kOptimizer,   // its work and state (parallel/sharding/optimizer_sharding.h)
  kGradients,   // and gradients (parallel/fully_sharded/fully_sharded.h)
  kParameters,  // and parameters
};

inline bool ShardsGradients(Sharding sharding) {
  return sharding == Sharding::kGradients || sharding == Sharding::kParameters;
}

// Checks of options, with one wording for all. InvalidArgument, naming the
// option and its value, unless 0 <= value < inf.
absl::Status CheckNotNegative(absl::string_view option, double value);

// InvalidArgument unless value > 0; infinity is.
absl::Status CheckPositive(absl::string_view option, double value);

// InvalidArgument unless 0 <= value < 1.
absl::Status CheckBelowOne(absl::string_view option, double value);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_OPTIONS_H_
