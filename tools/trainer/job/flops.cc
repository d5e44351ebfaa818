#include "tools/trainer/job/flops.h"

#include <ATen/core/Tensor.h>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/meta/flops.h"
#include "models/registry.h"
#include "tools/trainer/job/model.h"

namespace tandem {
namespace {

absl::StatusOr<double> Forward(const TrainOptions& options,
                               const std::optional<Transformer>& transformer,
                               const Dataset& data) {
  if (options.peak_tflops == 0 &&
      absl::c_linear_search(RegisteredModels(), options.model)) {
    return absl::UnimplementedError(
        "the model is this program's own: give --peak_tflops");
  }
  TrainOptions plain = options;
  plain.loss_chunk = 0;  // the loss would have the last product
  plain.vocab_parallel = 1;
  plain.devices.channels_last = false;
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs layers,
                          LayersOf(plain, transformer, data));
  return ForwardFlops(layers, data.input_shape(),
                      data.tokens() ? at::kLong : at::kFloat);
}

}  // namespace

JobFlops FlopsOf(const TrainOptions& options,
                 const std::optional<Transformer>& transformer,
                 const Dataset& data, int devices) {
  JobFlops flops;
  flops.peak_of_all = options.peak_tflops * 1e12 * devices;
  const absl::StatusOr<double> forward = Forward(options, transformer, data);
  if (forward.ok()) {
    flops.forward = *forward;
  } else {
    flops.unknown = std::string(forward.status().message());
  }
  return flops;
}

}  // namespace tandem
