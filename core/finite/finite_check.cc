#include "core/finite/finite_check.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// Row-major.
std::vector<int64_t> ElementIndex(int64_t at, at::IntArrayRef shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = at % shape[i];
    at /= shape[i];
  }
  return index;
}

}  // namespace

bool IsFinite(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  return at::isfinite(values.detach()).all().item<bool>();
}

std::string CountNonfinite(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.detach().reshape({-1});
  const at::Tensor bad = at::isfinite(flat).logical_not();
  const int64_t nans = at::isnan(flat).sum().item<int64_t>();
  const int64_t all = bad.sum().item<int64_t>();
  const int64_t first = bad.to(at::kByte).argmax().item<int64_t>();
  return absl::StrCat(nans, " NaN and ", all - nans, " infinite of ",
                      flat.numel(), " values, the first at [",
                      absl::StrJoin(ElementIndex(first, values.sizes()), ", "),
                      "] (", flat[first].item<double>(), ")");
}

void ThrowNonfinite(const std::string& message) {
  throw std::out_of_range(message);
}

}  // namespace tandem
