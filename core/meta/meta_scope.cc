#include "core/meta/meta_scope.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cstddef>
#include <vector>

namespace tandem {
namespace {

// A key that LibTorch keeps for tensors of this kind, ahead of autograd's and
// all devices', and for which it has no kernels itself.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

thread_local c10::Device where = c10::Device(c10::kMeta);

// Operators that make tensors take `device`, which is None for the default.
void PutThere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "device") {
      (*stack)[first + i] = where;
    }
  }
}

void CallThere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  PutThere(op, stack);
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&CallThere>());
}

}  // namespace

MetaScope::MetaScope(c10::Device device) : outer_(where), guard_(kKey) {
  where = device;
}

MetaScope::~MetaScope() { where = outer_; }

}  // namespace tandem
