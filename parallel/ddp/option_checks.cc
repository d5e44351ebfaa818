#include "parallel/ddp/option_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "parallel/optim/update_options.h"

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

// The first of many.
std::string List(const std::vector<std::string>& names) {
  return ShortList(names, /*most=*/20);
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
  if (until.empty()) return absl::OkStatus();
  for (const std::string& name : options.delay_all_reduce_named_params) {
    TANDEM_RETURN_IF_ERROR(
        CheckTrained("delay_all_reduce_named_params", parameters, name));
  }
  const DistributedDataParallelOptions first =
      WithFirstNames(options, parameters);
  if (absl::c_linear_search(first.parameters_to_ignore,
                            first.param_to_hook_all_reduce)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "param_to_hook_all_reduce names ", until,
        ", which parameters_to_ignore names too: nobody would notice it"));
  }
  return CheckTrained("param_to_hook_all_reduce", parameters, until);
}

absl::Status CheckIgnored(const DistributedDataParallelOptions& options,
                          const NamedTensors& parameters,
                          const NamedTensors& buffers) {
  std::vector<std::string> unknown;
  for (const std::string& name : options.parameters_to_ignore) {
    if (!Has(parameters, name) && !Has(buffers, name)) unknown.push_back(name);
  }
  if (unknown.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameters_to_ignore names ", List(unknown),
                   ", but the model has no such parameter or buffer"));
}

absl::Status CheckInitialised(const NamedTensors& parameters) {
  std::vector<std::string> empty;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined()) empty.push_back(name);
  }
  if (empty.empty()) return absl::OkStatus();
  const bool one = empty.size() == 1;
  return absl::InvalidArgumentError(
      absl::StrCat(one ? "parameter " : "parameters ", List(empty),
                   one ? " has no value yet: initialise it first"
                       : " have no values yet: initialise them first"));
}

absl::Status CheckAnyTrained(const DistributedDataParallelOptions& options,
                             const NamedTensors& parameters) {
  const std::vector<std::string> named =
      WithFirstNames(options, parameters).parameters_to_ignore;
  std::vector<std::string> ignored;
  for (const auto& [name, tensor] : UnderFirstNames(parameters)) {
    if (!tensor.requires_grad()) continue;
    if (!absl::c_linear_search(named, name)) return absl::OkStatus();
    ignored.push_back(name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the model has no parameter that requires a gradient",
      ignored.empty() ? ": nothing to train"
                      : absl::StrCat(" and is to be averaged: nothing to train "
                                     "together; parameters_to_ignore names ",
                                     List(ignored))));
}

int64_t Bytes(double mib) { return static_cast<int64_t>(mib * (1 << 20)); }

BucketOptions MakeBucketOptions(const DistributedDataParallelOptions& options) {
  BucketOptions buckets;
  if (!options.bucket_cap_mb_list.empty()) {
    buckets.limits.clear();
    for (double mib : options.bucket_cap_mb_list) {
      buckets.limits.push_back(std::max<int64_t>(1, Bytes(mib)));
    }
  } else if (options.bucket_cap_mb) {
    buckets.limits = {std::max<int64_t>(1, Bytes(*options.bucket_cap_mb))};
  }
  return buckets;
}

}  // namespace

ReducerOptions MakeReducerOptions(const DistributedDataParallelOptions& options,
                                  const NamedTensors& parameters) {
  ReducerOptions reducer;
  reducer.buckets = MakeBucketOptions(options);
  reducer.find_unused_parameters = options.find_unused_parameters;
  reducer.static_graph = options.static_graph;
  reducer.skip_all_reduce_unused_params = options.skip_all_reduce_unused_params;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].first == options.param_to_hook_all_reduce) {
      reducer.delayed_until = static_cast<int64_t>(i);
    }
  }
  return reducer;
}

NamedTensors UnderFirstNames(const NamedTensors& parameters) {
  NamedTensors first;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& each : parameters) {
    if (seen.insert(each.second.unsafeGetTensorImpl()).second) {
      first.push_back(each);
    }
  }
  return first;
}

std::map<std::string, std::vector<std::string>> NamesOfTied(
    const NamedTensors& parameters) {
  std::map<const c10::TensorImpl*, std::vector<std::string>> all;
  for (const auto& [name, tensor] : parameters) {
    all[tensor.unsafeGetTensorImpl()].push_back(name);
  }
  std::map<std::string, std::vector<std::string>> tied;
  for (auto& each : all) {
    if (each.second.size() == 1) continue;
    const std::string first = each.second.front();
    tied[first] = std::move(each.second);
  }
  return tied;
}

DistributedDataParallelOptions WithFirstNames(
    DistributedDataParallelOptions options, const NamedTensors& parameters) {
  const auto tied = NamesOfTied(parameters);
  std::map<std::string, std::string> first_of;  // by any name
  for (const auto& [first, names] : tied) {
    for (const std::string& name : names) first_of[name] = first;
  }
  const auto rename = [&](std::string* name) {
    const auto found = first_of.find(*name);
    if (found != first_of.end()) *name = found->second;
  };
  for (std::string& name : options.parameters_to_ignore) rename(&name);
  for (std::string& name : options.delay_all_reduce_named_params) rename(&name);
  rename(&options.param_to_hook_all_reduce);
  options.optimizer_group = GroupOfAny(options.optimizer_group, tied);
  return options;
}

absl::Status CheckAreLeaves(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.is_leaf()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", name,
        " is computed from other tensors, so autograd gives it no gradient: "
        "register its values, as of tensor.detach()"));
  }
  return absl::OkStatus();
}

absl::Status CheckDdpValues(const DistributedDataParallelOptions& options) {
  if (!options.gradient_as_bucket_view) {
    return absl::InvalidArgumentError(
        "gradient_as_bucket_view cannot be off: gradients always are views of "
        "the buffers that are reduced");
  }
  TANDEM_RETURN_IF_ERROR(CheckMixedPrecision(options.mixed_precision));
  if (options.bucket_cap_mb) {
    TANDEM_RETURN_IF_ERROR(CheckCap("bucket_cap_mb", *options.bucket_cap_mb));
  }
  for (double mib : options.bucket_cap_mb_list) {
    TANDEM_RETURN_IF_ERROR(CheckCap("bucket_cap_mb_list", mib));
  }
  if (options.delay_all_reduce_named_params.empty() !=
      options.param_to_hook_all_reduce.empty()) {
    return absl::InvalidArgumentError(
        "delay_all_reduce_named_params and param_to_hook_all_reduce need each "
        "other: give both or none");
  }
  return absl::OkStatus();
}

absl::Status CheckDdpOptions(const DistributedDataParallelOptions& options,
                             const NamedTensors& parameters,
                             const NamedTensors& buffers) {
  TANDEM_RETURN_IF_ERROR(CheckDdpValues(options));
  TANDEM_RETURN_IF_ERROR(CheckInitialised(parameters));
  TANDEM_RETURN_IF_ERROR(CheckAreLeaves(parameters));
  TANDEM_RETURN_IF_ERROR(CheckDelayed(options, parameters));
  TANDEM_RETURN_IF_ERROR(CheckIgnored(options, parameters, buffers));
  return CheckAnyTrained(options, parameters);
}

}  // namespace tandem
