#include "core/meta/flops.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <memory>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/meta/operator_flops.h"
#include "core/meta/shapes.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

thread_local double counted = 0;

// When it begins: its inputs are known no longer than that.
std::unique_ptr<at::ObserverContext> Count(const at::RecordFunction& call) {
  counted += OperatorFlops(call.name(), call.inputs());
  return nullptr;
}

// Counts what the calling thread's operators do while it lives.
class Counting {
 public:
  Counting()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&Count).needsInputs(true).scopes(
                {at::RecordScope::FUNCTION}))) {
    counted = 0;
  }
  ~Counting() { at::removeCallback(handle_); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  const at::CallbackHandle handle_;
};

absl::StatusOr<LayerList> OnMeta(const LayerSpecs& specs) {
  const MetaScope no_storage;
  return MakeModelLayers(specs, /*seed=*/0);
}

}  // namespace

absl::StatusOr<double> ForwardFlops(const LayerSpecs& specs,
                                    const std::vector<int64_t>& input_shape,
                                    c10::ScalarType dtype) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, OnMeta(specs));
  SetTraining(layers, false);
  std::vector<int64_t> sizes = input_shape;
  sizes.insert(sizes.begin(), 1);
  return CatchTorchOr(
      [&] {
        const at::NoGradGuard no_grad;
        const at::Tensor input =
            at::empty(sizes, at::device(at::kMeta).dtype(dtype));
        const Counting counting;
        Forward(layers, input);
        return counted;
      },
      "counting the model's FLOPs");
}

}  // namespace tandem
