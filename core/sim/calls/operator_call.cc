#include "core/sim/calls/operator_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>

#include <string>

#include "core/sim/memory/block.h"
#include "core/sim/streams/device_guard.h"
#include "core/sim/streams/generator.h"

namespace tandem {
namespace sim {
namespace {

using Kind = OperatorTraits::Kind;

c10::IValue& At(torch::jit::Stack& stack, size_t count, size_t index) {
  return stack[stack.size() - count + index];
}
const c10::IValue& At(const torch::jit::Stack& stack, size_t count,
                      size_t index) {
  return stack[stack.size() - count + index];
}

std::string Name(int8_t device) {
  return device < 0 ? "cpu" : "sim:" + std::to_string(device);
}

}  // namespace

void OperatorCall::Check(c10::Device found, size_t argument) {
  const bool on_sim = found.type() == c10::DeviceType::PrivateUse1;
  if (on_sim && device_ < 0) device_ = found.index();
  const int8_t index = on_sim ? found.index() : kHost;
  if (index == device_ || traits_.mixes_devices) return;
  if (!on_sim && traits_.takes_cpu_tensors) return;
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at "
              "least two devices, ",
              Name(device_), " and ", found, "! (argument '",
              op_.schema().arguments()[argument].name(), "' of ", traits_.name,
              ")");
}

void OperatorCall::NoteDevice(const at::Tensor& tensor, size_t argument) {
  if (!tensor.defined()) return;
  const c10::Device device = tensor.device();
  // A scalar may come from the CPU, as on CUDA.
  if (device.type() != c10::DeviceType::PrivateUse1 && tensor.dim() == 0) {
    return;
  }
  Check(device, argument);
}

void OperatorCall::NoteDevices(const c10::IValue& value,
                               const OperatorTraits::Argument& argument) {
  if (value.isTensor()) {
    NoteDevice(value.toTensor(), argument.index);
  } else if (argument.kind == Kind::kTensorList && value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) {
      NoteDevice(each, argument.index);
    }
  } else if (argument.kind == Kind::kOptionalTensorList && value.isList()) {
    for (const c10::IValue& each : value.toListRef()) {
      if (each.isTensor()) NoteDevice(each.toTensor(), argument.index);
    }
  } else if (argument.kind == Kind::kListOfTensorLists && value.isList()) {
    OperatorTraits::Argument inner = argument;
    inner.kind = Kind::kTensorList;
    for (const c10::IValue& each : value.toListRef()) NoteDevices(each, inner);
  }
}

void OperatorCall::FindDevice(const torch::jit::Stack& stack) {
  const size_t count = traits_.argument_count;
  // Where a copy goes to is where it works; else the first simulated tensor's
  // device, whichever argument that is.
  for (const auto& argument : traits_.arguments) {
    const c10::IValue& value = At(stack, count, argument.index);
    if (argument.kind == Kind::kTensor && value.isTensor() &&
        value.toTensor().defined() &&
        value.toTensor().device().type() == c10::DeviceType::PrivateUse1) {
      device_ = value.toTensor().device().index();
      break;
    }
    if (argument.kind == Kind::kDevice && value.isDevice()) {
      const c10::Device named = value.toDevice();
      device_ = named.has_index() ? named.index() : CurrentDevice();
    }
  }
  for (const auto& argument : traits_.arguments) {
    NoteDevices(At(stack, count, argument.index), argument);
  }
  if (device_ < 0) device_ = CurrentDevice();
}

c10::IValue OperatorCall::ToHost(const c10::IValue& value, Kind kind) {
  if (value.isTensor()) return aliases_.ToHost(value.toTensor());
  if (kind == Kind::kTensorList && value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) {
      list.push_back(aliases_.ToHost(each));
    }
    return list;
  }
  if (kind == Kind::kOptionalTensorList && value.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& each : value.toListRef()) {
      list.push_back(each.isTensor()
                         ? std::make_optional(aliases_.ToHost(each.toTensor()))
                         : std::nullopt);
    }
    return list;
  }
  if (kind == Kind::kListOfTensorLists && value.isList()) {
    c10::List<c10::List<at::Tensor>> lists;
    for (const c10::IValue& each : value.toListRef()) {
      lists.push_back(ToHost(each, Kind::kTensorList).toTensorList());
    }
    return lists;
  }
  if (value.isStorage()) return aliases_.ToHost(value.toStorage());
  if (value.isDevice()) return c10::Device(c10::DeviceType::CPU);
  if (kind == Kind::kGenerator) {
    return HostGenerator(
        value.isNone() ? DefaultGenerator(device_) : value.toGenerator(),
        device_);
  }
  return value;
}

void OperatorCall::TakeArguments(torch::jit::Stack& stack) {
  FindDevice(stack);
  for (const auto& argument : traits_.arguments) {
    c10::IValue& value = At(stack, traits_.argument_count, argument.index);
    value = ToHost(value, argument.kind);
  }
}

void OperatorCall::RunKernel(torch::jit::Stack& stack) const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      traits_.has_cpu_kernel, "simulated devices run CPU kernels, and ",
      traits_.name, " has none; move its inputs to the CPU");
  const ChargeScope charge(device_, traits_.name);
  const at::AutoDispatchBelowADInplaceOrView below;
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
}

c10::IValue OperatorCall::ToDevice(const c10::IValue& value) {
  if (value.isTensor()) return aliases_.ToDevice(value.toTensor(), device_);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) {
      list.push_back(aliases_.ToDevice(each, device_));
    }
    return list;
  }
  if (value.isList() && !value.toListRef().empty() &&
      value.toListRef()[0].isTensorList()) {
    c10::List<c10::List<at::Tensor>> lists;
    for (const c10::IValue& each : value.toListRef()) {
      lists.push_back(ToDevice(each).toTensorList());
    }
    return lists;
  }
  return value;
}

void OperatorCall::GiveResults(torch::jit::Stack& stack) {
  aliases_.WriteBack(device_);
  for (size_t i = 0; i < traits_.return_count; ++i) {
    c10::IValue& value = At(stack, traits_.return_count, i);
    value = ToDevice(value);
  }
}

}  // namespace sim
}  // namespace tandem
