// DistributedDataParallel: torch.nn.parallel.DistributedDataParallel for C++.
//
//   auto net = std::make_shared<Net>();
//   TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, world));
//   TANDEM_ASSIGN_OR_RETURN(auto optimizer,
//                           MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
//   for (...) {
//     ddp->ZeroGrad();
//     TANDEM_ASSIGN_OR_RETURN(at::Tensor output, ddp->Forward(input));
//     TANDEM_RETURN_IF_ERROR(
//         ddp->Backward([&] { return loss(output, target); }));
//     optimizer->Step(learning_rate);
//   }
//
// docs/library.md tells more.

#ifndef TANDEM_PARALLEL_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define TANDEM_PARALLEL_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/model/module_traits.h"
#include "core/precision/autocast.h"
#include "parallel/ddp/options.h"
#include "parallel/ddp/replica.h"

namespace tandem {

// One replica of `Module` among those of all ranks. What it can do beside
// Forward stands in parallel/ddp/replica.h.
//
// The module may lie on several devices: it places inputs and outputs itself
// (PyTorch's case of unset device_ids). Gradients are averaged over the ranks
// during Backward; buffers are rank 0's before each Forward.
//
// Not thread-safe.
template <typename Module>
class DistributedDataParallel : public Replica {
 public:
  // Checks that all ranks have the same model, and gives all rank 0's values
  // (unless init_sync is off). Collective. InvalidArgument for options that do
  // not fit the model or each other, for a model without a parameter that
  // requires a gradient, and for models that differ: the message names the rank
  // and the parameter. `group` must outlive the replica.
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      Module module, Communicator& group,
      const DistributedDataParallelOptions& options = {}) {
    const NamedTensors parameters = ModuleTraits<Module>::Parameters(module);
    const NamedTensors buffers = ModuleTraits<Module>::Buffers(module);
    auto ddp = std::unique_ptr<DistributedDataParallel>(
        new DistributedDataParallel(std::move(module), group, options));
    absl::Status status = ddp->Prepare(parameters, buffers);
    if (!status.ok()) return status;
    return ddp;
  }

  // The module's forward, which gives what it likes: best a tensor, or a pair,
  // tuple, vector or map of tensors (Watch says why).
  // Collective while gradients are on (buffers come from rank 0).
  template <typename... Args>
  auto Forward(Args&&... args) -> OrStatus<decltype(ModuleTraits<Module>::Call(
      std::declval<Module&>(), std::forward<Args>(args)...))> {
    if (IsComputedAgain()) {  // exceptions are for who computes it
      return ModuleTraits<Module>::Call(module_, std::forward<Args>(args)...);
    }
    absl::Status status = BeforeForward();
    if (!status.ok()) return status;
    auto output = CatchTorchOr([&] {
      const AutocastGuard precision = Precision();
      return ModuleTraits<Module>::Call(module_, std::forward<Args>(args)...);
    });
    if (!output.ok()) return InStep("forward", output.status());
    Watch(*output);
    AfterForward();
    return output;
  }

  Module& module() { return module_; }

 private:
  DistributedDataParallel(Module module, Communicator& group,
                          const DistributedDataParallelOptions& options)
      : Replica(group, options), module_(std::move(module)) {}

  // Backward through any of these is a backward of this replica from its
  // beginning. Outputs of other kinds will do too, unless the module nests a
  // backward in its own (re-entrant checkpointing): the first gradient then
  // tells.
  template <typename T>
  void Watch(const T&) {}
  void Watch(const at::Tensor& output) { WatchOutput(output); }
  template <typename T>
  void Watch(const std::vector<T>& outputs) {
    for (const T& output : outputs) Watch(output);
  }
  template <typename Key, typename T>
  void Watch(const std::map<Key, T>& outputs) {
    for (const auto& each : outputs) Watch(each.second);
  }
  template <typename... T>
  void Watch(const std::tuple<T...>& outputs) {
    std::apply([&](const auto&... each) { (Watch(each), ...); }, outputs);
  }
  template <typename A, typename B>
  void Watch(const std::pair<A, B>& outputs) {
    Watch(outputs.first);
    Watch(outputs.second);
  }

  Module module_;
};

template <typename Module>
absl::StatusOr<std::unique_ptr<DistributedDataParallel<Module>>>
MakeDistributedDataParallel(
    Module module, Communicator& group,
    const DistributedDataParallelOptions& options = {}) {
  return DistributedDataParallel<Module>::Create(std::move(module), group,
                                                 options);
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_DISTRIBUTED_DATA_PARALLEL_H_
