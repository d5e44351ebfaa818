#include "core/random/default_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <mutex>
#include <string>

// How: operators with a "Generator?" argument have a kernel of their own, which
// fills it in, at a key that no device and no feature of LibTorch uses. The
// scope turns the key on for its thread; all other operators pass it by.

namespace tandem {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local DefaultGeneratorScope* current = nullptr;
thread_local int drawing = 0;  // operators, one in the other

struct Drawing {
  Drawing() { ++drawing; }
  ~Drawing() { --drawing; }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;
};

bool TakesGenerator(const c10::Argument& argument) {
  const c10::Type& type = *argument.type();
  if (type.kind() != c10::TypeKind::OptionalType) return false;
  return type.expectRef<c10::OptionalType>().getElementType()->kind() ==
         c10::TypeKind::GeneratorType;
}

// Where an operator works: on its tensors' device, or on the one that it is
// told. A scalar may come from the CPU.
c10::Device StackDevice(const torch::jit::Stack& stack, size_t count) {
  c10::Device device = c10::kCPU;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = torch::jit::peek(stack, i, count);
    if (value.isDevice()) device = value.toDevice();
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    device = value.toTensor().device();
    if (!device.is_cpu()) return device;
  }
  if (device.has_index() || device.is_cpu()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

void Redispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                torch::jit::Stack* stack) {
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

void FillIn(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
            torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!TakesGenerator(arguments[i])) continue;
    if (!torch::jit::peek(*stack, i, arguments.size()).isNone()) continue;
    const at::Generator mine =
        DefaultGeneratorScope::On(StackDevice(*stack, arguments.size()));
    if (mine.defined()) torch::jit::peek(*stack, i, arguments.size()) = mine;
  }
  const Drawing scope;
  Redispatch(op, keys, stack);
}

// aten::dropout(input, p, train). On other devices than the CPU, LibTorch takes
// a fused kernel, which cannot be given a generator.
void DropOut(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
             torch::jit::Stack* stack) {
  const at::Tensor input = torch::jit::peek(*stack, 0, 3).toTensor();
  const double p = torch::jit::peek(*stack, 1, 3).toDouble();
  const bool train = torch::jit::peek(*stack, 2, 3).toBool();
  if (input.is_cpu() || !train || p <= 0 || p >= 1) {
    return Redispatch(op, keys, stack);
  }
  const at::Tensor noise = at::empty_like(input);
  noise.bernoulli_(1 - p).div_(1 - p);
  torch::jit::drop(*stack, 3);
  torch::jit::push(*stack, input * noise);
}

bool HasGenerators(c10::Device device) {
  return device.is_cpu() || at::accelerator::isAccelerator(device.type());
}

at::Generator NewGenerator(c10::Device device, uint64_t seed) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator = at::globalContext()
                                .getAcceleratorHooksInterface(device.type())
                                .getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
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
  library.impl("dropout",
               torch::CppFunction::makeFromBoxedFunction<&DropOut>());
}

DefaultGeneratorScope::DefaultGeneratorScope(uint64_t seed)
    : seed_(seed), outer_(current), guard_(kKey) {
  current = this;
}

DefaultGeneratorScope::~DefaultGeneratorScope() { current = outer_; }

at::Generator DefaultGeneratorScope::On(c10::Device device) {
  return current == nullptr ? at::Generator() : current->Find(device);
}

bool DefaultGeneratorScope::IsDrawing() { return drawing > 0; }

at::Generator DefaultGeneratorScope::Find(c10::Device device) {
  for (const at::Generator& each : generators_) {
    if (each.device() == device) return each;
  }
  const at::Generator made =
      HasGenerators(device) ? Make(device) : at::Generator();
  if (made.defined()) generators_.push_back(made);
  return made;
}

at::Generator DefaultGeneratorScope::Make(c10::Device device) const {
  return NewGenerator(device, seed_);
}

at::Generator DefaultGeneratorScope::Outside(c10::Device device) const {
  return outer_ != nullptr ? outer_->Find(device)
                           : at::globalContext().defaultGenerator(device);
}

at::Generator DrawRecord::Recording::Make(c10::Device device) const {
  at::Generator outside = Outside(device);
  if (outside.defined()) {
    const std::lock_guard<std::mutex> lock(outside.mutex());
    record_->before_.push_back(outside.clone());
  }
  return outside;
}

at::Generator DrawRecord::Replay::Make(c10::Device device) const {
  for (const at::Generator& each : record_->before_) {
    if (each.device() == device) return each.clone();
  }
  return Outside(device);
}

}  // namespace tandem
