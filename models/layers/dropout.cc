#include "models/layers/dropout.h"

#include <ATen/ops/dropout.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "core/random/random.h"
#include "core/random/sample_scope.h"
#include "models/functions/dropout_function.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

// Key of all that is dropped at one place of a model in one step.
uint64_t KeyFor(const Samples& samples, absl::string_view name) {
  return SipHash(samples.seed, static_cast<uint64_t>(samples.step), name);
}

}  // namespace

at::Tensor SampleDropout(const at::Tensor& x, double p,
                         absl::string_view name) {
  const auto samples = SampleScope::Current();
  if (!samples.has_value()) return at::dropout(x, p, /*train=*/true);
  TORCH_CHECK(x.dim() > 0, "dropout ", std::string(name),
              " takes [samples, ...], but a scalar was given");
  if (p == 0) return x;
  return DropoutFunction(x, /*residual=*/{},
                         {KeyFor(*samples, name), samples->first, p});
}

Dropout::Dropout(std::string name, double p) : name_(std::move(name)), p_(p) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "dropout ", name_,
                    " cannot drop with probability ", p,
                    ": it must be from 0 to 1");
}

at::Tensor Dropout::forward(const at::Tensor& x) const {
  return is_training() ? SampleDropout(x, p_, name_) : x;
}

LayerSpec DropoutLayer(const std::string& name, double p) {
  return ModuleLayer<Dropout>(name, "Dropout", [name, p] {
    return std::make_shared<Dropout>(name, p);
  });
}

}  // namespace tandem
