// Losses beside the loss function's own: an inner layer's (an auxiliary
// classifier's, the load balance of a mixture of experts), or further terms of
// the loss function, each with a name; and sums that are reported alone.

#ifndef TANDEM_CORE_LOSS_LOSS_TERMS_H_
#define TANDEM_CORE_LOSS_LOSS_TERMS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/context/compute_context.h"

namespace tandem {

// What a layer or a loss function has added: a scalar, on its device.
struct LossTerm {
  std::string name;
  at::Tensor loss;
  bool is_sum = false;  // AddSum's: nothing that is trained
  // Where it was added, and as how much it counts there; said by who runs the
  // layers.
  int64_t microbatch = 0;
  double weight = 1;
};

// Collects what is added while one microbatch is computed.
class LossTerms {
 public:
  // While it lives, the calling thread's AddAuxiliaryLoss and AddSum add to
  // `terms`; null: nothing happens. Scopes nest.
  class Scope : public ComputeContext::Scope {
   public:
    explicit Scope(LossTerms* terms)
        : ComputeContext::Scope(
              [&](ComputeContext& context) { context.terms = terms; }) {}
  };

  // In the order in which they were added; several may have one name.
  const std::vector<LossTerm>& terms() const { return terms_; }

 private:
  friend void AddAuxiliaryLoss(const std::string& name, const at::Tensor& loss);
  friend void AddSum(const std::string& name, const at::Tensor& sum);

  std::vector<LossTerm> terms_;
};

// For a layer in its forward, on any stage of a pipeline, or a loss function:
// `loss`, a scalar, is added to what is trained, and reported by its name
// beside the loss function's result (Strategy::AuxiliaryLosses). It is to be a
// mean over samples as that one is: microbatches and replicas weigh by their
// samples. Several of one name add up. Nothing happens outside of training.
//
// Throws LibTorch's exception for a tensor of other than one element, and for
// an empty name.
void AddAuxiliaryLoss(const std::string& name, const at::Tensor& loss);

// For the same: `sum`, a scalar, over a microbatch's samples (its tokens, its
// correct predictions), is reported by its name as the sum over the step's
// samples (Strategy::NamedSums), or over those of an evaluation
// (Strategy::TakeEvaluationSums). It is detached, and stays on its device: all
// of them are read once a step, as doubles. Several of one name add up. Nothing
// happens outside of both. Throws as AddAuxiliaryLoss does.
void AddSum(const std::string& name, const at::Tensor& sum);

}  // namespace tandem

#endif  // TANDEM_CORE_LOSS_LOSS_TERMS_H_
