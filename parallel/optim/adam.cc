#include "parallel/optim/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "parallel/optim/option_checks.h"

namespace tandem {
namespace {

// The fused kernels take the number of the step as a tensor beside the values:
// without those that the device left out.
at::Tensor StepNumber(const OptimizerRange& range) {
  const at::Tensor number =
      at::full({}, range.steps + 1, range.values.options().dtype(at::kFloat));
  return range.skipped.has_value() ? number.sub(*range.skipped) : number;
}

template <typename Options>
std::vector<std::string> StateNames(const Options& options) {
  std::vector<std::string> names = {"exp_avg", "exp_avg_sq"};
  if (options.amsgrad) names.push_back("max_exp_avg_sq");
  return names;
}

// Of a range's state: there with amsgrad alone.
at::TensorList GreatestSquares(const std::vector<at::Tensor>& state) {
  return at::TensorList(state).slice(2);
}

class Adam : public Optimizer {
 public:
  Adam(const AdamOptions& options, const FlatBufferList& buffers,
       const ShareOfBuffer& share_of)
      : Optimizer({"Adam", StateNames(options), /*counts_steps=*/true}, buffers,
                  share_of),
        options_(options) {}

 protected:
  void StepRange(const Range& range, double learning_rate) override {
    at::_fused_adam_(
        {range.values}, {range.grads}, {range.state[0]}, {range.state[1]},
        GreatestSquares(range.state), {StepNumber(range)}, learning_rate,
        options_.beta1, options_.beta2, options_.weight_decay, options_.eps,
        options_.amsgrad, /*maximize=*/false, range.divisor, range.found_inf);
  }

 private:
  AdamOptions options_;
};

class AdamW : public Optimizer {
 public:
  AdamW(const AdamWOptions& options, const FlatBufferList& buffers,
        const ShareOfBuffer& share_of)
      : Optimizer({"AdamW", StateNames(options), /*counts_steps=*/true},
                  buffers, share_of),
        options_(options) {}

 protected:
  void StepRange(const Range& range, double learning_rate) override {
    at::_fused_adamw_(
        {range.values}, {range.grads}, {range.state[0]}, {range.state[1]},
        GreatestSquares(range.state), {StepNumber(range)}, learning_rate,
        options_.beta1, options_.beta2, options_.weight_decay, options_.eps,
        options_.amsgrad, /*maximize=*/false, range.divisor, range.found_inf);
  }

 private:
  AdamWOptions options_;
};

template <typename Options>
absl::Status Check(const Options& options) {
  TANDEM_RETURN_IF_ERROR(CheckBelowOne("beta1", options.beta1));
  TANDEM_RETURN_IF_ERROR(CheckBelowOne("beta2", options.beta2));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("eps", options.eps));
  return CheckNotNegative("weight_decay", options.weight_decay);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(
    const AdamOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  return std::make_unique<Adam>(options, buffers, share_of);
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdamW(
    const AdamWOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  return std::make_unique<AdamW>(options, buffers, share_of);
}

}  // namespace tandem
