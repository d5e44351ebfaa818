#include "parallel/ddp_options.h"

#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

absl::Status CheckCap(const char* option, double mib) {
  if (std::isfinite(mib) && mib > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      option, " must be a positive number of MiB, but ", mib, " was given"));
}

bool Has(const NamedTensors& tensors, const std::string& name) {
  return absl::c_any_of(tensors,
                        [&](const auto& each) { return each.first == name; });
}

absl::Status CheckTrained(const char* option, const NamedTensors& parameters,
                          const std::string& name) {
  for (const auto& [known, tensor] : parameters) {
    if (known != name) continue;
    if (tensor.requires_grad()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(option, " names ", name, ", which requires no gradient"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      option, " names ", name, ", but the model has no such parameter"));
}

absl::Status CheckDelayed(const DistributedDataParallelOptions& options,
                          const NamedTensors& parameters) {
  const std::string& until = options.param_to_hook_all_reduce;
  if (options.delay_all_reduce_named_params.empty() != until.empty()) {
    return absl::InvalidArgumentError(
        "delay_all_reduce_named_params and param_to_hook_all_reduce need each "
        "other: give both or none");
  }
  if (until.empty()) return absl::OkStatus();
  for (const std::string& name : options.delay_all_reduce_named_params) {
    TANDEM_RETURN_IF_ERROR(
        CheckTrained("delay_all_reduce_named_params", parameters, name));
  }
  if (absl::c_linear_search(options.parameters_to_ignore, until)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "param_to_hook_all_reduce names ", until,
        ", which parameters_to_ignore names too: nobody would notice it"));
  }
  return CheckTrained("param_to_hook_all_reduce", parameters, until);
}

absl::Status CheckIgnored(const DistributedDataParallelOptions& options,
                          const NamedTensors& parameters,
                          const NamedTensors& buffers) {
  for (const std::string& name : options.parameters_to_ignore) {
    if (Has(parameters, name) || Has(buffers, name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameters_to_ignore names ", name,
                     ", but the model has no such parameter or buffer"));
  }
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", name, " has no value yet: initialise it first"));
    }
    if (tensor.requires_grad() &&
        !absl::c_linear_search(options.parameters_to_ignore, name)) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      "the model has no parameter that requires a gradient: nothing to "
      "train");
}

}  // namespace

absl::Status CheckDdpOptions(const DistributedDataParallelOptions& options,
                             const NamedTensors& parameters,
                             const NamedTensors& buffers) {
  if (!options.gradient_as_bucket_view) {
    return absl::InvalidArgumentError(
        "gradient_as_bucket_view cannot be off: gradients always are views of "
        "the buffers that are reduced");
  }
  if (options.bucket_cap_mb) {
    TANDEM_RETURN_IF_ERROR(CheckCap("bucket_cap_mb", *options.bucket_cap_mb));
  }
  for (double mib : options.bucket_cap_mb_list) {
    TANDEM_RETURN_IF_ERROR(CheckCap("bucket_cap_mb_list", mib));
  }
  TANDEM_RETURN_IF_ERROR(CheckDelayed(options, parameters));
  return CheckIgnored(options, parameters, buffers);
}

}  // namespace tandem
