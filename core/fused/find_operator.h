// Operators of LibTorch by name.

#ifndef TANDEM_CORE_FUSED_FIND_OPERATOR_H_
#define TANDEM_CORE_FUSED_FIND_OPERATOR_H_

#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem {

// The operator of this name, which takes and gives what `Function` does. It
// must have been registered.
template <typename Function>
c10::TypedOperatorHandle<Function> FindOperator(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .template typed<Function>();
}

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_FIND_OPERATOR_H_
