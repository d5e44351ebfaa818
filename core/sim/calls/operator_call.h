// Operator call on simulated devices: its arguments on the way to a CPU kernel,
// its results on the way back.

#ifndef TANDEM_CORE_SIM_CALLS_OPERATOR_CALL_H_
#define TANDEM_CORE_SIM_CALLS_OPERATOR_CALL_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

#include "core/sim/calls/call_aliases.h"
#include "core/sim/calls/operator_traits.h"

namespace tandem {
namespace sim {

class OperatorCall {
 public:
  // `traits` must outlive this object.
  OperatorCall(const c10::OperatorHandle& op, const OperatorTraits& traits)
      : op_(op), traits_(traits) {}

  // Replaces the arguments on top of the stack by what a CPU kernel takes, and
  // finds the device: that of the tensors, or the one that an argument names,
  // or the thread's. c10::Error when tensors are on several devices.
  void TakeArguments(torch::jit::Stack& stack);

  // Runs the CPU kernel on them, charged to the device.
  void RunKernel(torch::jit::Stack& stack) const;

  // Replaces the kernel's results on top of the stack by the device's.
  void GiveResults(torch::jit::Stack& stack);

  // Finds the device as TakeArguments does, which calls this.
  void FindDevice(const torch::jit::Stack& stack);
  int8_t device() const { return device_; }

 private:
  void NoteDevice(const at::Tensor& tensor, size_t argument);
  void NoteDevices(const c10::IValue& value,
                   const OperatorTraits::Argument& argument);
  void Check(c10::Device found, size_t argument);
  c10::IValue ToHost(const c10::IValue& value, OperatorTraits::Kind kind);
  c10::IValue ToDevice(const c10::IValue& value);

  const c10::OperatorHandle op_;
  const OperatorTraits& traits_;
  CallAliases aliases_;
  int8_t device_ = -1;
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_CALLS_OPERATOR_CALL_H_
