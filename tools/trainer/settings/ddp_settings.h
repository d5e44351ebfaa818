// What the trainer is asked about --strategy=ddp.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_DDP_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_DDP_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Flags of the same names (ddp_settings_flags.cc tells what they mean).
struct DdpSettings {
  bool broadcast_buffers = true;
  bool init_sync = true;
  double bucket_cap_mb = 0;  // 0: 25, and 1 for the first
  std::vector<double> bucket_cap_mb_list;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
  bool static_graph = false;
  std::vector<std::string> delay_all_reduce_named_params;
  std::string param_to_hook_all_reduce;
  bool skip_all_reduce_unused_params = false;
  std::vector<std::string> parameters_to_ignore;
  int64_t gradient_accumulation_steps = 1;
  std::string comm_hook = "none";
  int64_t power_sgd_rank = 1;
  int64_t power_sgd_start_step = 1000;
  double power_sgd_min_compression_rate = 2;
  bool power_sgd_use_error_feedback = true;
  bool power_sgd_warm_start = true;
  double power_sgd_orthogonalization_epsilon = 0;
  uint64_t power_sgd_random_seed = 0;
  int64_t average_parameters_every = 0;  // 0: gradients are averaged instead
  int64_t average_parameters_warmup_steps = 0;
  bool ddp_logging = false;
};

// Reads the flags. InvalidArgument names the flag.
absl::StatusOr<DdpSettings> DdpSettingsFromFlags();

// Whether each is in its range and they fit together; which names the model has
// is seen later.
absl::Status Validate(const DdpSettings& settings);

// Every setting as (flag name, text).
std::vector<std::pair<std::string, std::string>> Describe(
    const DdpSettings& settings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_DDP_SETTINGS_H_
