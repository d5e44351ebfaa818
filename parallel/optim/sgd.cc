#include "parallel/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>

#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "parallel/optim/option_checks.h"

namespace tandem {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(const SgdOptions& options, const FlatBufferList& buffers,
      const ShareOfBuffer& share_of)
      : Optimizer({"SGD", StateOf(options), /*counts_steps=*/false}, buffers,
                  share_of),
        options_(options) {}

 protected:
  void StepRange(const Range& range, double learning_rate) override {
    at::_fused_sgd_({range.values}, {range.grads}, range.state,
                    options_.weight_decay, options_.momentum, learning_rate,
                    options_.dampening, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/range.steps == 0, range.divisor,
                    range.found_inf);
  }

 private:
  static std::vector<std::string> StateOf(const SgdOptions& options) {
    if (options.momentum == 0) return {};
    return {"momentum_buffer"};
  }

  SgdOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(
    const SgdOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("momentum", options.momentum));
  TANDEM_RETURN_IF_ERROR(
      CheckNotNegative("weight_decay", options.weight_decay));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("dampening", options.dampening));
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    return absl::InvalidArgumentError(
        "nesterov needs a momentum greater than 0 and no dampening");
  }
  return std::make_unique<Sgd>(options, buffers, share_of);
}

}  // namespace tandem
