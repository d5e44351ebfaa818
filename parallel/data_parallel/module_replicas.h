// Module replicas: a module, and its copies on several devices.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_MODULE_REPLICAS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_MODULE_REPLICAS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/module_traits.h"
#include "parallel/data_parallel/module_tensors.h"
#include "parallel/data_parallel/replica_traits.h"
#include "parallel/data_parallel/replicated_tensors.h"
#include "parallel/data_parallel/tensor_visitor.h"

namespace tandem {

// Calls a module with copies of the arguments in which other tensors stand.
// LibTorch's exceptions become a Status.
template <typename Module, typename Arguments>
auto CallWith(Module& module, const Arguments& arguments,
              const std::vector<at::Tensor>& tensors) {
  Arguments mine = arguments;
  ReplaceTensors(mine, tensors);
  return CatchTorchOr([&] {
    return std::apply(
        [&](auto&... each) {
          return ModuleTraits<Module>::Call(module, std::move(each)...);
        },
        mine);
  });
}

// See DataParallel, which users see, and ReplicatedTensors. With one device
// there is no replica.
template <typename Module>
class ModuleReplicas {
 public:
  using Factory = std::function<absl::StatusOr<Module>(c10::Device device)>;

  // Errors of DataParallel::Create.
  static absl::StatusOr<std::unique_ptr<ModuleReplicas>> Create(
      Module module, const std::vector<c10::Device>& devices,
      bool counts_all_writes, const Factory& factory) {
    auto replicas = absl::WrapUnique(new ModuleReplicas(std::move(module)));
    replicas->counts_all_writes_ = counts_all_writes;
    replicas->device_ = devices[0];
    TANDEM_RETURN_IF_ERROR(replicas->Check());
    if (devices.size() == 1) return replicas;
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { return replicas->Make(devices, factory); }));
    return replicas;
  }

  // InvalidArgument for a module that was moved from the first device.
  absl::Status Check() const { return CheckOnDevice(mine_, device_); }

  // ReplicatedTensors::Begin; replicas are in training or evaluation mode as
  // the module is. With the mode weights may have been exchanged (for their
  // moving averages, say).
  absl::Status Begin(size_t count) {
    bool differed = false;
    for (const SubModules& each : modules_of_) {
      differed = FollowMode(modules_, each) || differed;
    }
    if (differed) tensors_->Distrust();
    return CatchTorch([&] { return tensors_->Begin(count); });
  }

  // The replica as it is to be run now, on its thread.
  Module& Ready(size_t r) {
    if (r > 0) tensors_->CopyParameters(r);
    return replicas_[r];
  }

  // See DataParallel::NoteChange.
  void NoteChange() {
    if (tensors_ != nullptr) tensors_->Distrust();
  }

  Module& module() { return module_; }
  const std::vector<Module>& replicas() const { return replicas_; }
  int64_t bytes_copied() const {
    return tensors_ == nullptr ? 0 : tensors_->bytes_copied();
  }

 private:
  explicit ModuleReplicas(Module module)
      : module_(std::move(module)),
        mine_(TensorsOfModule(module_)),
        modules_(ReplicaTraits<Module>::Modules(module_)) {}

  static ModuleTensors TensorsOfModule(const Module& module) {
    return {ModuleTraits<Module>::Parameters(module),
            ModuleTraits<Module>::Buffers(module)};
  }

  absl::Status Make(const std::vector<c10::Device>& devices,
                    const Factory& factory) {
    std::vector<ModuleTensors> theirs;
    for (const c10::Device& device : devices) {
      absl::StatusOr<Module> made =
          factory ? factory(device)
                  : ReplicaTraits<Module>::Clone(module_, device);
      if (!made.ok()) return made.status();
      theirs.push_back(TensorsOfModule(*made));
      modules_of_.push_back(ReplicaTraits<Module>::Modules(*made));
      replicas_.push_back(*std::move(made));
      if (modules_of_.back().size() == modules_.size()) continue;
      return absl::InvalidArgumentError(
          "a replica is not a copy of the module: it has another number of "
          "submodules");
    }
    TANDEM_ASSIGN_OR_RETURN(
        tensors_,
        ReplicatedTensors::Create(mine_, theirs, devices, counts_all_writes_));
    return absl::OkStatus();
  }

  Module module_;
  c10::Device device_ = c10::kCPU;
  bool counts_all_writes_ = false;
  const ModuleTensors mine_;
  const SubModules modules_;  // of the module
  std::vector<Module> replicas_;
  std::vector<SubModules> modules_of_;          // of the replicas
  std::unique_ptr<ReplicatedTensors> tensors_;  // null: one device
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_MODULE_REPLICAS_H_
