#include "core/sim/operators/register_operators.h"

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/match.h"
#include "core/sim/calls/operator_traits.h"
#include "core/sim/calls/queued_call.h"
#include "core/sim/imagined/imagined_call.h"
#include "core/sim/imagined/imagined_memory.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {

torch::Library& NewLibrary(const char* name_space, c10::DispatchKey key) {
  // Never destroyed: operators are called while static objects are.
  static auto* kept = new std::vector<std::unique_ptr<torch::Library>>;
  kept->push_back(std::make_unique<torch::Library>(
      torch::Library::IMPL, name_space, key, __FILE__, __LINE__));
  return *kept->back();
}

namespace {

using c10::DispatchKey;

// Looked at once, and kept: what is queued needs it.
const OperatorTraits& FindTraits(const c10::OperatorHandle& op) {
  static auto* mutex = new std::mutex;
  static auto* all =
      new std::unordered_map<c10::OperatorName,
                             std::unique_ptr<const OperatorTraits>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<const OperatorTraits>& traits = (*all)[op.operator_name()];
  if (traits == nullptr) traits = std::make_unique<OperatorTraits>(op);
  return *traits;
}

void Call(const c10::OperatorHandle& op, const OperatorTraits& traits,
          torch::jit::Stack* stack) {
  if (MemoryIsImagined()) return CallImagined(op, traits, stack);
  if (IsAsynchronous()) return CallQueued(op, traits, stack);
  CallNow(op, traits, stack);
}

// Any operator on simulated devices: checks that the arguments are on one
// device (as CUDA's kernels do; CPU scalars and, for indexing, CPU indices may
// stand beside them), calls the CPU kernel on the same memory, and gives its
// results to the device.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  // For one operator.
  explicit BoxedKernel(const c10::OperatorHandle& op)
      : traits_(std::make_unique<OperatorTraits>(op)) {}
  // For any: looks at the operator in each call. It may be one that was not
  // there when devices were made (core/fused's).
  BoxedKernel() = default;

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    Call(op, traits_ == nullptr ? FindTraits(op) : *traits_, stack);
  }

 private:
  std::unique_ptr<const OperatorTraits> traits_;
};

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
