// Options of a parameter update: an optimizer for each parameter group,
// gradient clipping and gradient scaling.

#ifndef TANDEM_PARALLEL_OPTIM_UPDATE_OPTIONS_H_
#define TANDEM_PARALLEL_OPTIM_UPDATE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/precision/loss_scale.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {

// By a parameter's full name (UpdateOptions::optimizer_group).
using OptimizerGroup = std::function<int64_t(const std::string& name)>;

// `group`, but of a name that `names` has: the greatest number that it gives
// for any of the names listed there. Null for null.
OptimizerGroup GroupOfAny(
    OptimizerGroup group,
    std::map<std::string, std::vector<std::string>> names);

struct UpdateOptions {
  OptimizerOptions optimizer = SgdOptions{};         // of parameter group 0
  std::vector<OptimizerOptions> further_optimizers;  // of groups 1, 2, ...
  // By a parameter's full name; of a tied weight, which has several, the
  // greatest number of any (GroupOfAny). Null: as its traits say, which is
  // group 0 unless the layer's spec says otherwise
  // (core/model/parameter_traits.h).
  std::function<int64_t(const std::string&)> optimizer_group;
  // See ClipGradientNorm (gradient_clipping.h); 0: off. The norm is that of the
  // whole model's averaged gradients, the same on every rank.
  double clip_norm = 0;
  double clip_norm_type = 2;
  bool error_if_nonfinite = false;  // such a norm ends the job
  double clip_value = 0;  // see ClipGradientValue; 0: off. Before the norm
  // If set, the loss is scaled for backward, so that fp16 holds its gradients
  // (core/precision/loss_scale.h), which are unscaled before they are clipped.
  // A step with a gradient that is not finite, on whatever rank or stage,
  // updates nothing on any.
  std::optional<GradScalerOptions> grad_scaler;

  bool scales_loss() const { return grad_scaler && grad_scaler->enabled; }
};

// The optimizers' of groups 0, 1, ...
std::vector<OptimizerOptions> AllOptimizers(const UpdateOptions& options);

// InvalidArgument, naming the option and its value, for one that is out of its
// range. Optimizers check their own.
absl::Status CheckUpdateOptions(const UpdateOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_UPDATE_OPTIONS_H_
