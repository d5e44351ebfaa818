#include "parallel/optim/optimizer_rule.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "core/base/status_macros.h"
#include "parallel/optim/muon.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {
namespace {

std::vector<std::string> StateNames(const SgdOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum_buffer"};
}

std::vector<std::string> StateNames(const MuonOptions& /*options*/) {
  return {kMuonState};
}

template <typename Options>
std::vector<std::string> StateNames(const Options& options) {
  std::vector<std::string> names = {"exp_avg", "exp_avg_sq"};
  if (options.amsgrad) names.push_back("max_exp_avg_sq");
  return names;
}

class Sgd : public OptimizerRule {
 public:
  explicit Sgd(const SgdOptions& options)
      : OptimizerRule({"SGD", StateNames(options), /*counts_steps=*/false}),
        options_(options) {}

  void Step(const OptimizerRange& range, double learning_rate) const override {
    at::_fused_sgd_({range.values}, {range.grads}, range.state,
                    options_.weight_decay, options_.momentum, learning_rate,
                    options_.dampening, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/range.steps == 0, range.divisor,
                    range.found_inf);
  }

 private:
  const SgdOptions options_;
};

// The fused kernels take the number of the step as a tensor beside the values:
// without those that the device left out.
at::Tensor StepNumber(const OptimizerRange& range) {
  const at::Tensor number =
      at::full({}, range.steps + 1, range.values.options().dtype(at::kFloat));
  return range.skipped.has_value() ? number.sub(*range.skipped) : number;
}

// A range's third state, which is there with amsgrad alone.
at::TensorList GreatestSquares(const std::vector<at::Tensor>& state) {
  return at::TensorList(state).slice(2);
}

using AdamKernel = void (*)(at::TensorList values, at::TensorList grads,
                            at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                            at::TensorList max_exp_avg_sqs,
                            at::TensorList steps, double learning_rate,
                            double beta1, double beta2, double weight_decay,
                            double eps, bool amsgrad, bool maximize,
                            const std::optional<at::Tensor>& divisor,
                            const std::optional<at::Tensor>& found_inf);

// Adam or AdamW, which differ in the kernel.
template <typename Options, AdamKernel kernel>
class Adam : public OptimizerRule {
 public:
  Adam(const char* name, const Options& options)
      : OptimizerRule({name, StateNames(options), /*counts_steps=*/true}),
        options_(options) {}

  void Step(const OptimizerRange& range, double learning_rate) const override {
    kernel({range.values}, {range.grads}, {range.state[0]}, {range.state[1]},
           GreatestSquares(range.state), {StepNumber(range)}, learning_rate,
           options_.beta1, options_.beta2, options_.weight_decay, options_.eps,
           options_.amsgrad, /*maximize=*/false, range.divisor,
           range.found_inf);
  }

 private:
  const Options options_;
};

using OwnedRule = std::unique_ptr<OptimizerRule>;

template <typename Options, AdamKernel kernel>
absl::StatusOr<OwnedRule> MakeAdam(const char* name, const Options& options) {
  TANDEM_RETURN_IF_ERROR(CheckBelowOne("beta1", options.beta1));
  TANDEM_RETURN_IF_ERROR(CheckBelowOne("beta2", options.beta2));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("eps", options.eps));
  TANDEM_RETURN_IF_ERROR(
      CheckNotNegative("weight_decay", options.weight_decay));
  return std::make_unique<Adam<Options, kernel>>(name, options);
}

struct Maker {
  absl::StatusOr<OwnedRule> operator()(const SgdOptions& options) const {
    TANDEM_RETURN_IF_ERROR(CheckNotNegative("momentum", options.momentum));
    TANDEM_RETURN_IF_ERROR(
        CheckNotNegative("weight_decay", options.weight_decay));
    TANDEM_RETURN_IF_ERROR(CheckNotNegative("dampening", options.dampening));
    if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
      return absl::InvalidArgumentError(
          "nesterov needs a momentum greater than 0 and no dampening");
    }
    return std::make_unique<Sgd>(options);
  }
  absl::StatusOr<OwnedRule> operator()(const AdamOptions& options) const {
    return MakeAdam<AdamOptions, at::_fused_adam_>("Adam", options);
  }
  absl::StatusOr<OwnedRule> operator()(const AdamWOptions& options) const {
    return MakeAdam<AdamWOptions, at::_fused_adamw_>("AdamW", options);
  }
  absl::StatusOr<OwnedRule> operator()(const MuonOptions& options) const {
    return MakeMuon(options);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<OptimizerRule>> MakeOptimizerRule(
    const OptimizerOptions& options) {
  return absl::visit(Maker(), options);
}

int StateNumbers(const OptimizerOptions& options) {
  return absl::visit(
      [](const auto& each) {
        return static_cast<int>(StateNames(each).size());
      },
      options);
}

int MostStateNumbers(const std::vector<OptimizerOptions>& options) {
  int most = 0;
  for (const OptimizerOptions& each : options) {
    most = std::max(most, StateNumbers(each));
  }
  return most;
}

}  // namespace tandem
