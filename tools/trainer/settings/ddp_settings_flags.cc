// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/ddp_settings.h"

ABSL_FLAG(bool, broadcast_buffers, true,
          "ddp: every rank takes rank 0's buffers (BatchNorm's running "
          "statistics) after each step.");
ABSL_FLAG(bool, init_sync, true,
          "ddp: at the start ranks compare their models and take rank 0's "
          "values.");
ABSL_FLAG(double, bucket_cap_mb, 0,
          "ddp: MiB of gradients that travel together; 0: 25, and 1 for the "
          "first bucket.");
ABSL_FLAG(std::string, bucket_cap_mb_list, "",
          "ddp: the same for the first bucket, the second, ..., with commas "
          "between; the last value serves the rest.");
ABSL_FLAG(bool, find_unused_parameters, false,
          "ddp: allow steps that do not use every parameter.");
ABSL_FLAG(bool, gradient_as_bucket_view, true,
          "ddp: gradients are views of the buffers that are reduced. Always "
          "so; false is refused.");
ABSL_FLAG(bool, static_graph, false,
          "ddp: every step uses the same parameters as often, some of them "
          "several times or never.");
ABSL_FLAG(std::string, delay_all_reduce_named_params, "",
          "ddp: parameters, with commas between, that are averaged together "
          "when that of --param_to_hook_all_reduce is ready.");
ABSL_FLAG(std::string, param_to_hook_all_reduce, "",
          "ddp: the parameter that --delay_all_reduce_named_params wait for.");
ABSL_FLAG(bool, skip_all_reduce_unused_params, false,
          "ddp: what no rank used in the first step is not averaged later.");
ABSL_FLAG(std::string, parameters_to_ignore, "",
          "ddp: parameters and buffers, with commas between, that each rank "
          "keeps to itself.");
ABSL_FLAG(int64_t, gradient_accumulation_steps, 1,
          "Parts into which a rank's batch is cut; their gradients add up and "
          "are averaged over the ranks once (no_sync).");
ABSL_FLAG(std::string, comm_hook, "none",
          "ddp: how gradients are averaged: none or allreduce (as they are; "
          "the latter by way of a hook), fp16 or bf16 (half the bytes), "
          "powersgd, powersgd_fp16 or powersgd_bf16 (which wrap it).");
ABSL_FLAG(int64_t, power_sgd_rank, 1,
          "ddp: rank of --comm_hook=powersgd's matrices "
          "(matrix_approximation_rank).");
ABSL_FLAG(int64_t, power_sgd_start_step, 1000,
          "ddp: steps before --comm_hook=powersgd begins to compress "
          "(start_powerSGD_iter).");
ABSL_FLAG(double, power_sgd_min_compression_rate, 2,
          "ddp: --comm_hook=powersgd compresses gradients that become smaller "
          "by more than this factor.");
ABSL_FLAG(bool, power_sgd_use_error_feedback, true,
          "ddp: --comm_hook=powersgd adds what compression lost to the next "
          "gradient.");
ABSL_FLAG(bool, power_sgd_warm_start, true,
          "ddp: --comm_hook=powersgd begins with the last step's Q, not with "
          "a random one.");
ABSL_FLAG(double, power_sgd_orthogonalization_epsilon, 0,
          "ddp: --comm_hook=powersgd adds this to norms that it divides by.");
ABSL_FLAG(uint64_t, power_sgd_random_seed, 0,
          "ddp: seed of --comm_hook=powersgd's random matrices.");
ABSL_FLAG(int64_t, average_parameters_every, 0,
          "ddp: average parameters every so many steps, and no gradients "
          "(local SGD); 0: gradients, in every step.");
ABSL_FLAG(int64_t, average_parameters_warmup_steps, 0,
          "ddp: first steps in which gradients are averaged all the same.");
ABSL_FLAG(bool, ddp_logging, false,
          "ddp: at the end, print the mean times of forward, backward, "
          "communication and their overlap, and the buckets.");

namespace tandem {
namespace {

std::vector<std::string> ListFlag(const std::string& given) {
  return absl::StrSplit(given, ',', absl::SkipWhitespace());
}

absl::StatusOr<std::vector<double>> ParseCaps(const std::string& given) {
  std::vector<double> caps;
  for (const std::string& part : ListFlag(given)) {
    double cap = 0;
    if (!absl::SimpleAtod(part, &cap)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--bucket_cap_mb_list=", given,
                       ": takes numbers with commas between, such as 1,25"));
    }
    caps.push_back(cap);
  }
  return caps;
}

}  // namespace

absl::StatusOr<DdpSettings> DdpSettingsFromFlags() {
  DdpSettings settings;
  settings.broadcast_buffers = absl::GetFlag(FLAGS_broadcast_buffers);
  settings.init_sync = absl::GetFlag(FLAGS_init_sync);
  settings.bucket_cap_mb = absl::GetFlag(FLAGS_bucket_cap_mb);
  TANDEM_ASSIGN_OR_RETURN(settings.bucket_cap_mb_list,
                          ParseCaps(absl::GetFlag(FLAGS_bucket_cap_mb_list)));
  settings.find_unused_parameters = absl::GetFlag(FLAGS_find_unused_parameters);
  settings.gradient_as_bucket_view =
      absl::GetFlag(FLAGS_gradient_as_bucket_view);
  settings.static_graph = absl::GetFlag(FLAGS_static_graph);
  settings.delay_all_reduce_named_params =
      ListFlag(absl::GetFlag(FLAGS_delay_all_reduce_named_params));
  settings.param_to_hook_all_reduce =
      absl::GetFlag(FLAGS_param_to_hook_all_reduce);
  settings.skip_all_reduce_unused_params =
      absl::GetFlag(FLAGS_skip_all_reduce_unused_params);
  settings.parameters_to_ignore =
      ListFlag(absl::GetFlag(FLAGS_parameters_to_ignore));
  settings.gradient_accumulation_steps =
      absl::GetFlag(FLAGS_gradient_accumulation_steps);
  settings.comm_hook = absl::GetFlag(FLAGS_comm_hook);
  settings.power_sgd_rank = absl::GetFlag(FLAGS_power_sgd_rank);
  settings.power_sgd_start_step = absl::GetFlag(FLAGS_power_sgd_start_step);
  settings.power_sgd_min_compression_rate =
      absl::GetFlag(FLAGS_power_sgd_min_compression_rate);
  settings.power_sgd_use_error_feedback =
      absl::GetFlag(FLAGS_power_sgd_use_error_feedback);
  settings.power_sgd_warm_start = absl::GetFlag(FLAGS_power_sgd_warm_start);
  settings.power_sgd_orthogonalization_epsilon =
      absl::GetFlag(FLAGS_power_sgd_orthogonalization_epsilon);
  settings.power_sgd_random_seed = absl::GetFlag(FLAGS_power_sgd_random_seed);
  settings.average_parameters_every =
      absl::GetFlag(FLAGS_average_parameters_every);
  settings.average_parameters_warmup_steps =
      absl::GetFlag(FLAGS_average_parameters_warmup_steps);
  settings.ddp_logging = absl::GetFlag(FLAGS_ddp_logging);
  return settings;
}

}  // namespace tandem
