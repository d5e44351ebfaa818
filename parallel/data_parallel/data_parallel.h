// DataParallel: torch.nn.DataParallel for C++, one process, several devices, a
// replica of the module on each. Forward cuts a batch into a part for each
// device, runs all replicas at once, and joins what they give; backward brings
// their gradients together in the module's own parameters.
// docs/library.md shows how it is used.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_DATA_PARALLEL_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_DATA_PARALLEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/device/device.h"
#include "core/model/module_traits.h"
#include "parallel/data_parallel/replicated_state.h"
#include "parallel/data_parallel/scatter_gather.h"

namespace tandem {

// Which samples a replica computes: rows of the whole batch.
struct ReplicaRows {
  std::vector<int64_t> first;
  std::vector<int64_t> count;
};

// A thread for each device but the first, kept from one forward to the next
// (torch.nn.parallel.parallel_apply). Used by one thread at a time.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::vector<c10::Device> devices);

  // Runs `work` for replicas 0 to rows.first.size() - 1, all at once, each with
  // its device as the current one: replica 0 on the calling thread, the others
  // on their own, with the caller's settings (gradient mode, autocast,
  // streams). Comes back when all have ended. The first replica's error, which
  // names the replica and its device; an exception becomes one.
  //
  // What layers find out about their samples is true in each replica:
  // SampleScope has the replica's first sample, so that what is a function of
  // the sample is as on one device; losses that layers add (AddAuxiliaryLoss)
  // are weighed by samples, and added to the caller's. What is drawn from
  // LibTorch's default generator is the caller's in replica 0; in the others it
  // is another stream each, a function of the state that the generator of
  // devices[0] is in at the call: the same again for the same seed.
  absl::Status Run(const ReplicaRows& rows,
                   absl::FunctionRef<absl::Status(size_t replica)> work);

 private:
  DeviceThread& ReplicaThread(size_t replica);

  const std::vector<c10::Device> devices_;
  std::vector<std::unique_ptr<DeviceThread>> threads_;  // null: not yet
};

// PyTorch's names.
struct DataParallelOptions {
  // Replica i's device; the module lies on the first. Devices other than the
  // CPU have numbers. The same device twice has two replicas. Empty: all
  // devices of the process's accelerator, or the CPU alone where there is none.
  std::vector<c10::Device> device_ids = {};
  // Where outputs are gathered; none: on the first device.
  std::optional<c10::Device> output_device = {};
  // Along which inputs are cut and outputs are joined.
  int64_t dim = 0;
  // Not PyTorch's. Whoever writes to a parameter counts it in the tensor's
  // version: in-place operations do, and tandem's optimizers, but not
  // LibTorch's SGD. Then accumulation of gradients copies nothing to the
  // replicas.
  bool counts_all_writes = false;
};

// The devices that options mean. InvalidArgument for a device without a number.
absl::StatusOr<std::vector<c10::Device>> DataParallelDevices(
    const DataParallelOptions& options);

namespace data_parallel_internal {

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

}  // namespace data_parallel_internal

// Replicas are made once and kept. Replica 0 shares the module's memory, so
// what its forward writes to buffers stays; other replicas' buffers are the
// module's again before each forward. Members that are no tensors are each
// replica's own.
//
// The module is what is trained, saved and given to optimizers, as without the
// wrapper; any number of losses, retain_graph, torch::NoGradGuard, train() and
// eval() do what they do without it, and so does DistributedDataParallel around
// a shared pointer to this. Not thread-safe.
template <typename Module>
class DataParallel {
 public:
  // Makes another module of the same structure; its values do not matter.
  using Factory = std::function<absl::StatusOr<Module>(c10::Device device)>;

  // `module`, of any kind that ModuleTraits takes, lies on the first device; it
  // is copied by `factory`, or by its clone(). InvalidArgument for one that
  // cannot be copied, one that lies elsewhere, naming the parameter or buffer,
  // and a copy that differs; LibTorch's errors for a device without room.
  static absl::StatusOr<std::unique_ptr<DataParallel>> Create(
      Module module, const DataParallelOptions& options = {},
      const Factory& factory = nullptr) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<c10::Device> devices,
                            DataParallelDevices(options));
    auto parallel = absl::WrapUnique(
        new DataParallel(std::move(module), options, std::move(devices)));
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { return parallel->MakeReplicas(factory); }));
    return parallel;
  }

  // What the module's forward gives for these arguments. Tensors within them
  // are cut, those within the output joined, on the output device
  // (scatter_gather.h says which are found); scalars that replicas give become
  // a vector. What is no tensor goes to every replica. A batch of one sample or
  // none, and a forward without arguments, are the first device's alone: then,
  // and with one device, the module itself is called.
  //
  // Errors name the replica and its device; another Forward may follow.
  template <typename... Args>
  auto Forward(Args&&... args) -> OrStatus<decltype(ModuleTraits<Module>::Call(
      std::declval<Module&>(), std::declval<std::decay_t<Args>>()...))> {
    const std::tuple<std::decay_t<Args>...> all{std::forward<Args>(args)...};
    TANDEM_RETURN_IF_ERROR(state_->Check());
    TANDEM_ASSIGN_OR_RETURN(
        const ScatteredTensors scattered,
        ScatterTensors(
            FindTensors(all, "input"),
            sizeof...(Args) == 0 ? std::vector{devices_[0]} : devices_,
            options_.dim));
    const size_t count = scattered.parts.size();
    using data_parallel_internal::CallWith;
    using Output = typename decltype(CallWith(module_, all, {}))::value_type;
    std::vector<std::optional<Output>> outputs(count);
    const auto run = [&](Module& replica, size_t r) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(outputs[r],
                              CallWith(replica, all, scattered.parts[r]));
      return absl::OkStatus();
    };
    if (count == 1) {
      TANDEM_RETURN_IF_ERROR(
          RunOnDevice(devices_[0], [&] { return run(module_, 0); }));
    } else {
      TANDEM_RETURN_IF_ERROR(state_->Begin(count));
      TANDEM_RETURN_IF_ERROR(
          threads_.Run({scattered.first_rows, scattered.rows}, [&](size_t r) {
            state_->CopyParameters(r);
            return run(replicas_[r], r);
          }));
    }
    std::vector<Output> values;
    for (auto& each : outputs) values.push_back(*std::move(each));
    if (devices_.size() > 1) {
      return Gather(std::move(values), output_device(), options_.dim);
    }
    return CatchTorchOr([&] {
      VisitTensors(values[0], "", [&](at::Tensor& tensor, const std::string&) {
        if (tensor.defined()) tensor = tensor.to(output_device());
      });
      return std::move(values[0]);
    });
  }

  // For who has said counts_all_writes and writes to parameters past their
  // version counters (Tensor::data(), raw pointers): the next forward copies
  // all to the replicas.
  void NoteChange() { state_->NoteChange(); }

  Module& module() { return module_; }
  const std::vector<c10::Device>& device_ids() const { return devices_; }
  c10::Device output_device() const {
    return options_.output_device.value_or(devices_[0]);
  }

  // The replicas between two forwards; none where there is one device.
  const std::vector<Module>& replicas() const { return replicas_; }
  // Bytes of parameters and buffers that were copied to replicas, for
  // measurements.
  int64_t bytes_copied() const { return state_->bytes_copied(); }

 private:
  DataParallel(Module module, const DataParallelOptions& options,
               std::vector<c10::Device> devices)
      : options_(options),
        devices_(std::move(devices)),
        module_(std::move(module)),
        threads_(devices_) {}

  static ModuleState MakeModuleState(const Module& module) {
    return {ModuleTraits<Module>::Parameters(module),
            ModuleTraits<Module>::Buffers(module),
            ReplicaTraits<Module>::Modules(module)};
  }

  absl::Status MakeReplicas(const Factory& factory) {
    TANDEM_ASSIGN_OR_RETURN(
        state_, ReplicatedState::Create(MakeModuleState(module_), devices_,
                                        options_.counts_all_writes));
    if (devices_.size() == 1) return absl::OkStatus();
    std::vector<ModuleState> states;
    for (const c10::Device& device : devices_) {
      TANDEM_ASSIGN_OR_RETURN(
          Module made, factory ? factory(device)
                               : ReplicaTraits<Module>::Clone(module_, device));
      states.push_back(MakeModuleState(made));
      replicas_.push_back(std::move(made));
    }
    return state_->AddReplicas(states);
  }

  const DataParallelOptions options_;
  const std::vector<c10::Device> devices_;
  Module module_;
  std::vector<Module> replicas_;
  std::unique_ptr<ReplicatedState> state_;
  ReplicaThreads threads_;
};

template <typename Module>
absl::StatusOr<std::unique_ptr<DataParallel<Module>>> MakeDataParallel(
    Module module, const DataParallelOptions& options = {},
    const typename DataParallel<Module>::Factory& factory = nullptr) {
  return DataParallel<Module>::Create(std::move(module), options, factory);
}

// torch.nn.parallel.data_parallel, for a module that is called once:
// DataParallel::Create, and its Forward, with replicas of its own. The output's
// graph keeps what it needs of the replicas.
template <typename Module, typename... Args>
auto RunDataParallel(Module module, const DataParallelOptions& options,
                     Args&&... args)
    -> decltype(std::declval<DataParallel<Module>&>().Forward(
        std::forward<Args>(args)...)) {
  TANDEM_ASSIGN_OR_RETURN(const auto parallel,
                          MakeDataParallel(std::move(module), options));
  return parallel->Forward(std::forward<Args>(args)...);
}

// DataParallel as a module: what DistributedDataParallel takes where each rank
// has several devices with a replica each (the DDP tutorial's demo_basic).
template <typename Module>
struct ModuleTraits<std::shared_ptr<DataParallel<Module>>> {
  using Wrapped = std::shared_ptr<DataParallel<Module>>;
  static NamedTensors Parameters(const Wrapped& wrapped) {
    return ModuleTraits<Module>::Parameters(wrapped->module());
  }
  static NamedTensors Buffers(const Wrapped& wrapped) {
    return ModuleTraits<Module>::Buffers(wrapped->module());
  }
  template <typename... Args>
  static auto Call(Wrapped& wrapped, Args&&... args) {
    return wrapped->Forward(std::forward<Args>(args)...);
  }
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_DATA_PARALLEL_H_
