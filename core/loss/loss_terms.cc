#include "core/loss/loss_terms.h"

#include <c10/util/Exception.h>

namespace tandem {
namespace {

thread_local LossTerms* current = nullptr;

}  // namespace

LossTerms::Scope::Scope(LossTerms* terms) : outer_(current) { current = terms; }

LossTerms::Scope::~Scope() { current = outer_; }

void AddAuxiliaryLoss(const std::string& name, const at::Tensor& loss) {
  TORCH_CHECK_VALUE(!name.empty(), "a loss that is added needs a name");
  TORCH_CHECK_VALUE(loss.defined() && loss.numel() == 1, "loss ", name,
                    " must be a scalar",
                    loss.defined() ? c10::str(", not ", loss.sizes()) : "");
  if (current != nullptr) current->terms_.push_back({name, loss});
}

}  // namespace tandem
