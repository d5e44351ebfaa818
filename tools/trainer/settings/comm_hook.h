// Communication hook of a job: what --comm_hook says, with the options of
// PowerSGD behind its name.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_COMM_HOOK_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_COMM_HOOK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/comm_hooks/power_sgd.h"

namespace tandem {

struct CommHook {
  std::string name = "none";  // one of CommHookNames()
  PowerSgdOptions power_sgd;  // of a name that begins with powersgd

  bool is_power_sgd() const;
};

// none, allreduce, fp16, bf16, powersgd, powersgd_fp16, powersgd_bf16.
std::vector<std::string> CommHookNames();

// NAME, or for PowerSGD NAME:OPTION=VALUE,...: powersgd:rank=2,start=100. The
// options are rank (matrix_approximation_rank), start (start_powerSGD_iter),
// min_rate (min_compression_rate), error_feedback (use_error_feedback),
// warm_start, epsilon (orthogonalization_epsilon) and seed (random_seed).
// InvalidArgument for a name or an option that is not known, and for a value
// that the option does not take: it says what is taken.
absl::StatusOr<CommHook> ParseCommHook(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_COMM_HOOK_H_
