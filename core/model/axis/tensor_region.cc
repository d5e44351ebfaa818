#include "core/model/axis/tensor_region.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/precision/autocast.h"

namespace tandem {
namespace {

constexpr int64_t kTokens = 1;  // the dimension

}  // namespace

TensorRegion::TensorRegion(const TensorParallel& parallel,
                           const std::string& name)
    : parallel_(parallel),
      name_(name),
      activations_(absl::StrCat("activations that go into ", name)),
      sums_(absl::StrCat("activations that come out of ", name)) {}

at::Tensor TensorRegion::Enter(const at::Tensor& x, int64_t tokens) const {
  if (is_whole()) return x;
  const at::Tensor factor =
      x.to(AutocastDtype(x.device().type(), x.scalar_type()));
  return parallel_.sequence_parallel
             ? AllGatherAlong(factor, kTokens, parallel_.group, activations_,
                              tokens)
             : CopyToAxis(factor, parallel_.group, activations_);
}

at::Tensor TensorRegion::Leave(at::Tensor part) const {
  if (is_whole()) return part;
  return parallel_.sequence_parallel
             ? ReduceScatterAlong(part, kTokens, parallel_.group, sums_)
             : ReduceFromAxis(std::move(part), parallel_.group, sums_);
}

at::Tensor TensorRegion::Outside(const at::Tensor& x) const {
  if (!is_sequence_parallel()) return x;
  return ScatterToAxis(x, kTokens, parallel_.group, sums_);
}

at::Tensor TensorRegion::Everywhere(const at::Tensor& x, int64_t tokens) const {
  if (!is_sequence_parallel()) return x;
  return GatherFromAxis(x, kTokens, parallel_.group, activations_, tokens);
}

at::Tensor TensorRegion::FirstToken(const at::Tensor& x) const {
  if (!is_sequence_parallel()) return x.select(kTokens, 0);
  return GatherFromAxis(x.narrow(kTokens, 0, 1), kTokens, parallel_.group,
                        activations_)
      .select(kTokens, 0);
}

int64_t TensorRegion::FirstPosition(int64_t tokens) const {
  return is_sequence_parallel() ? index() * tokens : 0;
}

int64_t TensorRegion::FirstElement(const at::Tensor& x) const {
  return x.numel() == 0 ? 0 : FirstPosition(x.numel() / x.size(0));
}

void TensorRegion::CheckTokens(int64_t tokens) const {
  TORCH_CHECK_VALUE(!is_sequence_parallel() || tokens % degree() == 0, name_,
                    ": samples of ", tokens, " tokens cannot be divided over ",
                    degree(), " ranks along ", parallel_.group->axis(),
                    ": choose a length that they divide, or do without "
                    "sequence parallelism");
}

}  // namespace tandem
