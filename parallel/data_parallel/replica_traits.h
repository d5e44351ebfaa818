// Replica traits: how a model of any kind is copied for another device.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_REPLICA_TRAITS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_REPLICA_TRAITS_H_

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"
#include "core/model/layer.h"
#include "core/random/default_generator.h"
#include "parallel/data_parallel/replicated_state.h"

namespace tandem {

// For what behaves like a pointer to a torch::nn::Module: its copies, and the
// modules within.
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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_REPLICA_TRAITS_H_
