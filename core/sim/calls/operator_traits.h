// Operator traits: what a call needs to know of its schema, worked out once.

#ifndef TANDEM_CORE_SIM_CALLS_OPERATOR_TRAITS_H_
#define TANDEM_CORE_SIM_CALLS_OPERATOR_TRAITS_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tandem {
namespace sim {

struct OperatorTraits {
  explicit OperatorTraits(const c10::OperatorHandle& op);

  enum class Kind {
    kTensor,
    kTensorList,
    kOptionalTensorList,
    kListOfTensorLists,
    kStorage,
    kDevice,
    kGenerator,
  };
  struct Argument {
    size_t index;
    Kind kind;
  };

  // "aten::mm.out"; a char array that lives as long as the process.
  const char* name;
  size_t argument_count;
  size_t return_count;
  std::vector<Argument> arguments;  // arguments that are not plain values
  // May its tensors be on several devices, or on the CPU?
  bool mixes_devices;      // copies
  bool copies_from_first;  // a copy of the first argument, not the second
  bool takes_cpu_tensors;  // indexing
  bool has_cpu_kernel;
  bool is_view;  // results lie in arguments' memory, nothing is computed
  bool depends_on_data;  // shapes of results do
  bool changes_storage;  // an argument's
  bool returns_tensors_alone;
  bool shape_follows_reals;  // results' shapes depend on real numbers
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_CALLS_OPERATOR_TRAITS_H_
