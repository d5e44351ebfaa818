// Module replicas: a module, and its copies on several devices.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_MODULE_REPLICAS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_MODULE_REPLICAS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer.h"
#include "core/model/module_traits.h"
#include "core/random/default_generator.h"
#include "parallel/data_parallel/module_tensors.h"
#include "parallel/data_parallel/replicated_tensors.h"
#include "parallel/data_parallel/tensor_visitor.h"

namespace tandem {

using SubModules = std::vector<std::shared_ptr<torch::nn::Module>>;

// How a model of any kind is copied for another device, and which modules it
// has: for what behaves like a pointer to a torch::nn::Module.
template <typename Module>
struct ReplicaTraits {
  // By torch::nn::Module::clone, which draws initial values that nobody sees:
  // the caller's generators are left alone.
  static absl::StatusOr<Module> Clone(const Module& module,
                                      c10::Device device) {
    using Net = std::remove_const_t<std::remove_reference_t<decltype(*module)>>;
    const DefaultGeneratorScope draws(/*seed=*/0);
    absl::StatusOr<std::shared_ptr<torch::nn::Module>> copy =
        CatchTorchOr([&] { return module->clone(device); });
    if (copy.ok()) {
      auto net = std::dynamic_pointer_cast<Net>(*std::move(copy));
      if (net != nullptr) return Module(std::move(net));
      copy = absl::InvalidArgumentError("clone() gave another type of module");
    }
    return absl::Status(
        copy.status().code(),
        absl::StrCat(
            "module ", module->name(), " cannot be copied to ", device.str(),
            ": ", copy.status().message(),
            "; or give DataParallel a factory, which makes a module of "
            "the same parameters and buffers for a device"));
  }

  static SubModules Modules(const Module& module) { return module->modules(); }
};

template <>
struct ReplicaTraits<LayerList> {
  static absl::StatusOr<LayerList> Clone(const LayerList& /*layers*/,
                                         c10::Device /*device*/) {
    return absl::InvalidArgumentError(
        "a list of layers cannot be copied: give DataParallel a factory, which "
        "makes the same layers again (MakeLayers of the same specs)");
  }

  static SubModules Modules(const LayerList& layers) {
    SubModules all;
    for (const Layer& layer : layers) {
      if (layer.module == nullptr) continue;
      for (auto& each : layer.module->modules()) all.push_back(std::move(each));
    }
    return all;
  }
};

// Puts `replica` into the modes of `module`: training or evaluation, of each
// module within. Parents come before their children. Gives whether it was in
// others.
inline bool FollowMode(const SubModules& module, const SubModules& replica) {
  bool differed = false;
  for (size_t i = 0; i < module.size(); ++i) {
    const bool training = module[i]->is_training();
    if (replica[i]->is_training() == training) continue;
    replica[i]->train(training);
    differed = true;
  }
  return differed;
}

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
