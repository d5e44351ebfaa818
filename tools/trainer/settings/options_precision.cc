// Which precisions a job is asked for, and whether they fit what else is asked.

#include <glog/logging.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

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

absl::Status CheckPrecision(const TrainOptions& options) {
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

}  // namespace tandem
