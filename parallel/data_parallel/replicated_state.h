// Replicated state: a module's parameters, buffers and modes, and those of its
// replicas on other devices, kept from one forward to the next.
//
// Replication in autograd's graph: replicas' tensors as functions of the
// module's, so that backward brings their gradients together there.
// (torch.nn.parallel.replicate, without making modules anew.)

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_STATE_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_STATE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/model/layer.h"
#include "core/random/default_generator.h"

namespace tandem {

// Makes replicas[r] a function of `master`: whoever computes with it from now
// on has its gradient flow to the master, on whose device, devices[0], those of
// all replicas are summed as soon as backward has them, while it goes on with
// others. The tensors stay the same objects, so that a module's members go on
// being what they were; what was computed with them before keeps its own way.
// Undefined ones are left out; a gradient that no replica has is undefined.
//
// `master` requires a gradient, or is itself computed; those of the replicas do
// not. Gradients and sums use the calling thread's current streams of the
// devices.
void RouteGradient(const at::Tensor& master,
                   const std::vector<at::Tensor>& replicas,
                   const std::vector<c10::Device>& devices);

// Leaves a tensor without a way for gradients, as a buffer has none.
void EndRoute(const at::Tensor& replica);

// The sum of gradients[i], which lie on devices[i], on devices[0]; undefined
// ones count as zero, and the sum of undefined ones alone is undefined. The
// order is that of a binary tree, always the same one:
// ((0 + 1) + (2 + 3)) + ((4 + 5) + 6). Each level's copies and sums of
// different pairs of devices are independent. (PyTorch sums one after the
// other, or by NCCL.)
//
// Differentiable (backward with create_graph). The sum may share memory with
// `gradients`, which keep their values. Throws LibTorch's errors.
at::Tensor SumOverDevices(std::vector<at::Tensor> gradients,
                          const std::vector<c10::Device>& devices);

using SubModules = std::vector<std::shared_ptr<torch::nn::Module>>;

// A module's, or a replica's.
struct ModuleState {
  NamedTensors parameters;
  NamedTensors buffers;
  SubModules modules;  // parents before their children
};

// Replica 0 lies on the module's device and has its memory: what its forward
// writes to a buffer (BatchNorm's running statistics) is written to the
// module's. The others have memory of their own, to which all values are copied
// before each forward. Where whoever writes to a parameter counts it in the
// tensor's version, those that have not changed are left out.
//
// Replicas' tensors stay the same objects. Used by one thread, but for
// CopyParameters.
class ReplicatedState {
 public:
  // Errors of Check.
  static absl::StatusOr<std::unique_ptr<ReplicatedState>> Create(
      ModuleState module, std::vector<c10::Device> devices,
      bool counts_all_writes);

  // `replicas[r]` are a clone's for devices[r], wherever its tensors lie now,
  // with whatever values. To be called once, if there are several devices.
  // InvalidArgument, naming the tensor, where a replica is not a clone of the
  // module, and for sparse parameters; LibTorch's exceptions (out of memory).
  absl::Status AddReplicas(const std::vector<ModuleState>& replicas);

  // InvalidArgument, naming the tensor, for one of the module's that does not
  // lie on devices[0].
  absl::Status Check() const;

  // Has all be copied once more to every replica, whatever versions say.
  void NoteChange();

  // Before a forward of the first `count` replicas: modes are the module's,
  // buffers are copied, and, where gradients are on, replicas' tensors become
  // functions of those of the module's that require one
  // (RouteGradient). Follows the module's tensors to other memory on
  // their device (Check). LibTorch's exceptions become a Status.
  absl::Status Begin(size_t count);

  // Then, on the replica's thread, before it runs: copies parameters. For
  // several replicas at once. Throws LibTorch's exceptions.
  void CopyParameters(size_t replica);

  // To replicas: for who measures.
  int64_t bytes_copied() const;

 private:
  // Versions of a master and a replica's tensor, when the one was copied to the
  // other.
  using Versions = std::pair<uint32_t, uint32_t>;

  struct Entry {
    std::string name;
    at::Tensor master;
    bool is_buffer = false;
    bool required_gradient = false;    // when memory was given
    std::vector<at::Tensor> replicas;  // undefined: has another name before
    std::vector<std::optional<Versions>> copied;  // by replica; none: not yet
  };

  ReplicatedState(ModuleState module, std::vector<c10::Device> devices,
                  bool counts_all_writes);

  absl::Status Add(const NamedTensors& master,
                   const std::vector<const NamedTensors*>& replicas,
                   bool are_buffers);
  absl::Status DropAliases();
  bool HasMoved(const Entry& entry) const;
  void GiveMemory();
  void FollowModes();
  void Route(size_t count) const;
  void CopyTo(size_t replica, Entry& entry);

  const ModuleState module_;
  const std::vector<c10::Device> devices_;
  const bool counts_all_writes_;
  std::vector<SubModules> modules_;  // of the replicas
  std::vector<Entry> entries_;
  // By replica: whether all is to be copied; bytes.
  std::vector<char> copies_all_;
  std::vector<int64_t> bytes_;
};

// How a model of any kind is copied for another device. For what behaves like a
// pointer to a torch::nn::Module: its copies, and the modules within.
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

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_STATE_H_
