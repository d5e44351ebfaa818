#include "core/default_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/library.h>

#include <string>

// How: operators with a "Generator?" argument have a kernel of their own, which
// fills it in, at a key that no device and no feature of LibTorch uses. The
// scope turns the key on for its thread; all other operators pass it by.

namespace tandem {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local DefaultGeneratorScope* current = nullptr;

bool TakesGenerator(const c10::Argument& argument) {
  const c10::Type& type = *argument.type();
  if (type.kind() != c10::TypeKind::OptionalType) return false;
  return type.expectRef<c10::OptionalType>().getElementType()->kind() ==
         c10::TypeKind::GeneratorType;
}

void FillIn(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
            torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!TakesGenerator(arguments[i])) continue;
    c10::IValue& given = torch::jit::peek(*stack, i, arguments.size());
    if (given.isNone()) given = DefaultGeneratorScope::Current();
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

void RegisterAten(torch::Library& library) {
  const std::string prefix = "aten::";
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.compare(0, prefix.size(), prefix) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op.has_value()) continue;
    bool takes = false;
    for (const auto& each : op->schema().arguments()) {
      takes = takes || TakesGenerator(each);
    }
    if (!takes) continue;
    std::string local = name.name.substr(prefix.size());
    if (!name.overload_name.empty()) local += "." + name.overload_name;
    library.impl(local.c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&FillIn>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  RegisterAten(library);
}

DefaultGeneratorScope::DefaultGeneratorScope(uint64_t seed, c10::Device device)
    : seed_(seed), outer_(current) {
  if (!device.is_cpu()) return;
  guard_.emplace(kKey);
  current = this;
}

DefaultGeneratorScope::~DefaultGeneratorScope() { current = outer_; }

at::Generator DefaultGeneratorScope::Current() {
  if (current == nullptr) return at::Generator();
  if (!current->generator_.defined()) {
    current->generator_ = at::detail::createCPUGenerator(current->seed_);
  }
  return current->generator_;
}

}  // namespace tandem
