#include "core/loss/loss_terms.h"

#include <c10/util/Exception.h>

namespace tandem {
namespace {

void CheckTerm(const char* what, const std::string& name,
               const at::Tensor& value) {
  TORCH_CHECK_VALUE(!name.empty(), "a ", what, " that is added needs a name");
  TORCH_CHECK_VALUE(value.defined() && value.numel() == 1, what, " ", name,
                    " must be a scalar",
                    value.defined() ? c10::str(", not ", value.sizes()) : "");
}

}  // namespace

void AddAuxiliaryLoss(const std::string& name, const at::Tensor& loss) {
  CheckTerm("loss", name, loss);
  LossTerms* const terms = ComputeContext::Current().terms;
  if (terms != nullptr) terms->terms_.push_back({name, loss});
}

void AddSum(const std::string& name, const at::Tensor& sum) {
  CheckTerm("sum", name, sum);
  LossTerms* const terms = ComputeContext::Current().terms;
  if (terms != nullptr) terms->terms_.push_back({name, sum.detach(), true});
}

}  // namespace tandem
