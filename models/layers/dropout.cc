#include "models/layers/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/random/philox.h"
#include "core/random/random.h"
#include "core/random/sample_scope.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

// Of all that is dropped at one place of a model in one step.
PhiloxKey KeyFor(const Samples& samples, absl::string_view name) {
  const uint64_t key =
      SipHash(samples.seed, static_cast<uint64_t>(samples.step), name);
  return {Low(key), High(key)};
}

// Element e of sample s takes word e % 4 of block (s, e / 4).
void FillRow(float* row, int64_t size, uint64_t sample, const PhiloxKey& key,
             double p) {
  const auto threshold = static_cast<uint64_t>(std::ldexp(p, 32));
  const auto scale = static_cast<float>(p < 1 ? 1 / (1 - p) : 0);
  for (int64_t first = 0; first < size; first += 4) {
    const auto block = static_cast<uint64_t>(first / 4);
    const PhiloxBlock words =
        Philox({Low(block), High(block), Low(sample), High(sample)}, key);
    for (int64_t i = 0; i < 4 && first + i < size; ++i) {
      row[first + i] = words[i] < threshold ? 0 : scale;
    }
  }
}

// What x is multiplied by. Made on the CPU: it is the same on all devices.
at::Tensor Mask(const at::Tensor& x, double p, const Samples& samples,
                absl::string_view name) {
  const at::NoGradGuard no_grad;
  const at::Tensor mask = at::empty(x.sizes(), at::kFloat);
  const PhiloxKey key = KeyFor(samples, name);
  const int64_t rows = x.size(0);
  const int64_t size = rows == 0 ? 0 : x.numel() / rows;
  auto* values = mask.mutable_data_ptr<float>();
  for (int64_t row = 0; row < rows; ++row) {
    FillRow(values + row * size, size,
            static_cast<uint64_t>(samples.first + row), key, p);
  }
  return mask.to(x.device(), x.scalar_type());
}

}  // namespace

at::Tensor SampleDropout(const at::Tensor& x, double p,
                         absl::string_view name) {
  const auto samples = SampleScope::Current();
  if (!samples.has_value()) return at::dropout(x, p, /*train=*/true);
  TORCH_CHECK(x.dim() > 0, "dropout ", std::string(name),
              " takes [samples, ...], but a scalar was given");
  return p == 0 ? x : x * Mask(x, p, *samples, name);
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
