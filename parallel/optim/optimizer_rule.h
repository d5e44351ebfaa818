// Optimizer rules: how parameters follow from their gradients. SGD, Adam and
// AdamW, each with its options, as one fused step over neighbours in a flat
// buffer; Muon, a matrix at a time.

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_RULE_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_RULE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {

// PyTorch's name of the number of steps, where it is a state.
inline constexpr char kStepState[] = "step";

struct OptimizerTraits {
  std::string name;  // "SGD", "Adam", "AdamW", "Muon"
  // One buffer each, as large as the parameters: {"exp_avg", "exp_avg_sq"}.
  std::vector<std::string> buffers;
  // Whether the number of steps is a state too ("step"), on which the update
  // depends; else only the first step may differ from later ones.
  bool counts_steps;
  // A range is one parameter, of two dimensions, and has its sizes; else it is
  // of any neighbours, which are alike to the rule.
  bool steps_matrices = false;
};

// Neighbours in one flat buffer: slices of it.
struct OptimizerRange {
  at::Tensor values;
  at::Tensor grads;
  std::vector<at::Tensor> state;      // as OptimizerTraits::buffers
  int64_t steps;                      // done before this one
  std::optional<at::Tensor> divisor;  // of grads, float32; null: none
  // Whether the device leaves this step out (Optimizer::StepUnless), and how
  // many of `steps` it has left out; numbers of float32. Null: it cannot.
  std::optional<at::Tensor> found_inf = std::nullopt;
  std::optional<at::Tensor> skipped = std::nullopt;
};

class OptimizerRule {
 public:
  virtual ~OptimizerRule() = default;
  OptimizerRule(const OptimizerRule&) = delete;
  OptimizerRule& operator=(const OptimizerRule&) = delete;

  const OptimizerTraits& traits() const { return traits_; }

  // Updates range.values and range.state in place.
  virtual void Step(const OptimizerRange& range,
                    double learning_rate) const = 0;

 protected:
  explicit OptimizerRule(OptimizerTraits traits) : traits_(std::move(traits)) {}

 private:
  const OptimizerTraits traits_;
};

// The rule of whichever options are given:
//
// torch.optim.SGD. State: momentum_buffer where momentum is not zero; a
// parameter's first step sets it to the gradient. InvalidArgument for negative
// or non-finite values, and for nesterov without momentum or with dampening.
//
// torch.optim.Adam (Kingma and Ba, arXiv:1412.6980) and torch.optim.AdamW
// (Loshchilov and Hutter, arXiv:1711.05101), either with AMSGrad (Reddi et al.,
// arXiv:1904.09237). State: exp_avg, exp_avg_sq, max_exp_avg_sq with amsgrad,
// and step for each parameter. InvalidArgument for betas outside [0, 1) and for
// negative or non-finite values.
//
// torch.optim.Muon (parallel/optim/muon.h). State: momentum_buffer.
absl::StatusOr<std::unique_ptr<OptimizerRule>> MakeOptimizerRule(
    const OptimizerOptions& options);

// How many numbers of state it keeps for each parameter: 0 or 1 of SGD, 2 or 3
// of Adam and AdamW, 1 of Muon.
int StateNumbers(const OptimizerOptions& options);
// The greatest of several optimizers'; 0: there are none.
int MostStateNumbers(const std::vector<OptimizerOptions>& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_RULE_H_
