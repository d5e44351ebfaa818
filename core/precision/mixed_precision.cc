#include "core/precision/mixed_precision.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/host_resources.h"

namespace tandem {
namespace {

using Dtype = std::optional<c10::ScalarType>;

}  // namespace

absl::Status CheckMixedPrecision(const MixedPrecision& precision) {
  const std::pair<const char*, Dtype> options[] = {
      {"param_dtype", precision.param_dtype},
      {"reduce_dtype", precision.reduce_dtype},
      {"buffer_dtype", precision.buffer_dtype}};
  for (const auto& [name, dtype] : options) {
    if (!dtype || *dtype == c10::kBFloat16 || *dtype == c10::kHalf) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("mixed_precision.", name, " is ", c10::toString(*dtype),
                     ": expected BFloat16 or Half, or none for fp32"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dtype> PrecisionOfName(absl::string_view name) {
  if (name == "fp32") return Dtype();
  if (name == "bf16") return Dtype(c10::kBFloat16);
  if (name == "fp16") return Dtype(c10::kHalf);
  return absl::InvalidArgumentError(
      absl::StrCat("precision '", name, "': expected fp32, bf16 or fp16"));
}

std::string PrecisionName(Dtype dtype) {
  if (!dtype) return "fp32";
  if (*dtype == c10::kBFloat16) return "bf16";
  if (*dtype == c10::kHalf) return "fp16";
  return c10::toString(*dtype);
}

std::string Describe(const MixedPrecision& precision) {
  return absl::StrCat("params ", PrecisionName(precision.param_dtype),
                      ", gradients ", PrecisionName(precision.reduce_dtype),
                      " between replicas, buffers ",
                      PrecisionName(precision.buffer_dtype));
}

std::string WhySlowOnThisProcessor(c10::ScalarType dtype) {
  if (dtype == c10::kBFloat16) {
    if (ProcessorHas("avx512_bf16")) return "";
    return "this processor has no instructions for bf16 (AVX512_BF16 or AMX): "
           "it will be slower than fp32";
  }
  if (dtype != c10::kHalf || ProcessorHas("amx_fp16")) return "";
  return "this processor has no AMX instructions for fp16: it will be slower "
         "than bf16, and maybe than fp32";
}

void CastBuffers(const NamedTensors& buffers, c10::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, buffer] : buffers) {
    if (!at::isFloatingType(buffer.scalar_type()) ||
        absl::EndsWith(name, "running_mean") ||
        absl::EndsWith(name, "running_var")) {
      continue;
    }
    buffer.set_data(buffer.to(dtype));
  }
}

}  // namespace tandem
