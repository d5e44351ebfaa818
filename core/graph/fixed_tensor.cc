#include "core/graph/fixed_tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/device/placement.h"

namespace tandem {

std::string FormOfTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return absl::StrCat(c10::toString(tensor.scalar_type()), "[",
                      absl::StrJoin(tensor.sizes(), ","), "]",
                      tensor.requires_grad() ? "*" : "");
}

at::Tensor PlaceFor(const at::Tensor& like, c10::Device device) {
  if (!like.defined()) return like;
  const at::Tensor place =
      at::empty_like(like, like.options().device(device).pinned_memory(false));
  return place.requires_grad_(like.requires_grad());
}

void FillPlace(const at::Tensor& place, const at::Tensor& from) {
  if (!place.defined()) return;
  const at::NoGradGuard no_grad;
  place.copy_(PlaceOn(place.device(), from), /*non_blocking=*/true);
}

}  // namespace tandem
