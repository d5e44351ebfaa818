#include "core/sim/operators/register_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "core/sim/operators/boxed_kernel.h"
#include "core/sim/operators/libraries.h"

namespace tandem {
namespace sim {
namespace {

using c10::DispatchKey;

// Operators that choose by the device's type what they call, and would not
// know this one: their CPU choice is taken whole.
bool ChoosesByDevice(const c10::OperatorName& op) {
  return op.name == "aten::convolution_backward" ||
         op.name == "aten::_convolution" || op.name == "aten::convolution" ||
         op.name == "aten::copy_" || op.name == "aten::_copy_from" ||
         op.name == "aten::_copy_from_and_resize";
}

// Registered by hand, or answered rightly by LibTorch for any device.
bool IsLeftOut(const c10::OperatorName& op) {
  return op.name == "aten::_has_compatible_shallow_copy_type" ||
         op.name == "aten::empty" || op.name == "aten::empty_strided" ||
         op.name == "aten::is_pinned" || op.name == "aten::_pin_memory";
}

bool WantsKernel(const c10::OperatorHandle& op) {
  if (IsLeftOut(op.operator_name())) return false;
  return op.hasKernelForDispatchKey(DispatchKey::CPU) ||
         ChoosesByDevice(op.operator_name());
}

torch::CppFunction NewKernel(const c10::OperatorHandle& op) {
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<BoxedKernel>(op));
}

void RegisterNamespace(const std::string& name_space) {
  torch::Library& library =
      NewLibrary(name_space.c_str(), DispatchKey::PrivateUse1);
  const std::string prefix = name_space + "::";
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (!absl::StartsWith(name.name, prefix)) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value() || !WantsKernel(*op)) continue;
    const std::string local = name.name.substr(prefix.size());
    const std::string full =
        name.overload_name.empty() ? local : local + "." + name.overload_name;
    library.impl(full.c_str(), NewKernel(*op));
  }
}

class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

void RegisterOperators() {
  RegisterNamespace("aten");
  RegisterNamespace("mkldnn");
  {
    // c10d's own kernels for such devices ask for a backend of theirs; it warns
    // that they are replaced.
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    RegisterNamespace("c10d");
  }
  NewLibrary("_", DispatchKey::PrivateUse1)
      .fallback(torch::CppFunction::makeFromBoxedFunctor(
          std::make_unique<BoxedKernel>()));
  RegisterSpecialOperators();
  RegisterRecurrentOperators();
  RegisterAutocast();
  RegisterRefusals();
}

}  // namespace sim
}  // namespace tandem
