#include "parallel/optim/update_options.h"

#include "core/base/status_macros.h"
#include "parallel/optim/option_checks.h"

namespace tandem {

absl::Status CheckUpdateOptions(const UpdateOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_norm", options.clip_norm));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("clip_value", options.clip_value));
  TANDEM_RETURN_IF_ERROR(
      CheckPositive("clip_norm_type", options.clip_norm_type));
  return options.grad_scaler ? CheckGradScalerOptions(*options.grad_scaler)
                             : absl::OkStatus();
}

}  // namespace tandem
