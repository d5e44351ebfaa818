// Which precisions a job is asked for, and whether they fit what else is asked.

#include <glog/logging.h>

#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

absl::Status CheckReduceDtype(const TrainOptions& options) {
  if (options.reduce_dtype == "fp32") return absl::OkStatus();
  const std::string given =
      absl::StrCat("--reduce_dtype=", options.reduce_dtype);
  if (options.ddp.comm_hook != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " and --comm_hook=", options.ddp.comm_hook,
                     " both say how gradients travel: leave one of them out"));
  }
  if (!options.pipeline.reproducible) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      given,
      " rounds what replicas send, which --reproducible cannot have: leave one "
      "out"));
}

GradScalerOptions ScalerGiven(const TrainOptions& options) {
  GradScalerOptions scaler;
  scaler.init_scale = options.init_scale;
  scaler.growth_factor = options.growth_factor;
  scaler.backoff_factor = options.backoff_factor;
  scaler.growth_interval = options.growth_interval;
  return scaler;
}

// Nobody asks for a scale that is not used.
absl::Status CheckUnscaled(const TrainOptions& options) {
  const std::set<std::string> scales = {"init_scale", "growth_factor",
                                        "backoff_factor", "growth_interval"};
  for (const auto& [flag, value] :
       Differing(Describe(options), Describe(TrainOptions()))) {
    if (scales.count(flag) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", ToText(value),
        " is about the scale of the loss, which fp16 alone needs, but products "
        "are computed in ",
        PrecisionName(PrecisionOf(options).param_dtype),
        ": give --dtype=fp16, or leave it out"));
  }
  return absl::OkStatus();
}

// What cannot skip a step, or cannot forget it.
absl::Status CheckSkipping(const TrainOptions& options) {
  const std::string skipping =
      options.skip_nonfinite ? "--skip_nonfinite" : "--dtype=fp16";
  if (ServersOf(options) > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        skipping,
        " skips a step on all ranks where one gradient overflows, "
        "but with --strategy=parameter_server nobody sees all gradients of a "
        "step: leave it out (--dtype=bf16 needs no scale), or take another "
        "strategy"));
  }
  const bool remembers = absl::StartsWith(options.ddp.comm_hook, "powersgd") &&
                         (options.ddp.power_sgd_use_error_feedback ||
                          options.ddp.power_sgd_warm_start);
  if (!remembers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--comm_hook=", options.ddp.comm_hook,
      " takes over from step to step what it could not send, in which the "
      "overflows that ",
      skipping,
      " skips would stay for good: leave it out "
      "(--dtype=bf16 needs no scale), take another hook, or "
      "--nopower_sgd_use_error_feedback and "
      "--nopower_sgd_warm_start as well"));
}

absl::Status CheckScaling(const TrainOptions& options) {
  const std::optional<GradScalerOptions> scaler = GradScalerOf(options);
  if (!scaler || scaler->constant) {
    TANDEM_RETURN_IF_ERROR(CheckUnscaled(options));
  }
  if (!scaler) return absl::OkStatus();
  const absl::Status values = CheckGradScalerOptions(*scaler);
  if (!values.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", values.message()));
  }
  return CheckSkipping(options);
}

}  // namespace

MixedPrecision PrecisionOf(const TrainOptions& options) {
  MixedPrecision precision;
  const auto take = [](const std::string& name,
                       std::optional<c10::ScalarType>* dtype) {
    const auto known = PrecisionOfName(name);
    CHECK(known.ok()) << known.status();  // the table has checked it
    *dtype = *known;
  };
  take(options.param_dtype.empty() ? options.dtype : options.param_dtype,
       &precision.param_dtype);
  take(options.reduce_dtype, &precision.reduce_dtype);
  take(options.buffer_dtype, &precision.buffer_dtype);
  return precision;
}

std::optional<GradScalerOptions> GradScalerOf(const TrainOptions& options) {
  if (PrecisionOf(options).param_dtype == c10::kHalf) {
    return ScalerGiven(options);
  }
  if (!options.skip_nonfinite) return std::nullopt;
  GradScalerOptions none;
  none.init_scale = 1;
  none.constant = true;
  return none;
}

absl::Status CheckPrecision(const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckReduceDtype(options));
  return CheckScaling(options);
}

}  // namespace tandem
