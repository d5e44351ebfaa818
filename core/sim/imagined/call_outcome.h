// Outcome of an operator's call without its values: the shapes of its results,
// and the memory that it takes on the way to them.

#ifndef TANDEM_CORE_SIM_IMAGINED_CALL_OUTCOME_H_
#define TANDEM_CORE_SIM_IMAGINED_CALL_OUTCOME_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/sim/calls/operator_traits.h"
#include "core/sim/imagined/imagined_memory.h"

namespace tandem {
namespace sim {

// Stand-ins of a call's arguments: tensors of the same shapes elsewhere, to
// call a kernel on.

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

// A tensor that the call gives, or an argument as it is afterwards.
struct OutcomeTensor {
  bool defined = false;
  // Numbers among the call's tensors (ArgumentTensors): of the one that it is,
  // and of the one that it is a view of; -1: none.
  int argument = -1;
  int viewed = -1;
  int block = -1;  // of the events; -1: it lies elsewhere, or has no elements
  size_t storage_bytes = 0;
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
};

struct OutcomeResult {
  c10::IValue value;  // of one without tensors: what zeros come to
  bool is_list = false;
  std::vector<OutcomeTensor> tensors;
};

struct CallOutcome {
  std::vector<AllocationEvent> events;
  int blocks = 0;
  std::vector<OutcomeResult> results;
  std::vector<OutcomeTensor> changed;  // arguments that have another shape now
  double flops = 0;
  double bytes = 0;  // read and written
};

// The tensors among arguments in order, those of lists included.
std::vector<at::Tensor> ArgumentTensors(const torch::jit::Stack& arguments);

// What a call of the CPU's kernel comes to. One with little to do (kRunAnyway)
// is run, on zeros in the host's memory; so its allocations are exactly that
// kernel's. Any other is told by its kernel for the meta device, whose
// temporaries may differ; where there is none, one that only writes to
// arguments takes no memory, and the rest is run after all, up to kMostRun
// bytes of arguments. The same outcome for all calls with the same signature
// (core/sim/calls). c10::Error as the kernel's, or NotImplementedError.
// Thread-safe.
std::shared_ptr<const CallOutcome> ImaginedOutcome(
    const c10::OperatorHandle& op, const OperatorTraits& traits,
    const torch::jit::Stack& arguments);

// Bytes of arguments.
constexpr size_t kRunAnyway = size_t{4} << 20;
constexpr size_t kMostRun = size_t{1} << 31;

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_CALL_OUTCOME_H_
