// Stand-ins of a call's arguments: tensors of the same shapes elsewhere, to
// call a kernel on.

#ifndef TANDEM_CORE_SIM_IMAGINED_STAND_INS_H_
#define TANDEM_CORE_SIM_IMAGINED_STAND_INS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "core/sim/calls/operator_traits.h"

namespace tandem {
namespace sim {

// On the CPU, zeros; or on the meta device. What is on the CPU already (a
// number) stays, but for tensors with dimensions that stand beside meta ones.
struct StandIns {
  StandIns(const OperatorTraits& traits, const torch::jit::Stack& originals,
           c10::DeviceType type);

  torch::jit::Stack arguments;
  // The tensors among them in order, and the sizes that they had at first.
  std::vector<at::Tensor> tensors;
  std::vector<std::vector<int64_t>> sizes;

 private:
  at::Tensor For(const at::Tensor& original, c10::DeviceType type);
  c10::IValue For(const c10::IValue& original, OperatorTraits::Kind kind,
                  c10::DeviceType type);

  // Pairs of an original and what stands in for it.
  std::vector<std::pair<at::Tensor, at::Tensor>> made_;
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_STAND_INS_H_
