#include "core/backend/nccl_backend.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

#ifdef TANDEM_CUDA
// c10d's header is empty without it.
#define USE_C10D_NCCL
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace tandem {

bool NcclIsBuilt() {
#ifdef TANDEM_CUDA
  return true;
#else
  return false;
#endif
}

absl::Status CheckNcclIsBuilt() {
  if (NcclIsBuilt()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "NCCL is not in this build; build it with --config=cuda "
      "(docs/rehearsal.md)");
}

#ifdef TANDEM_CUDA

namespace {

using c10d::ProcessGroupNCCL;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using NcclPtr = c10::intrusive_ptr<ProcessGroupNCCL>;

absl::Status CheckDevice(c10::Device device) {
  const int found = c10::cuda::device_count();
  if (device.is_cuda() && device.has_index() && device.index() < found) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("NCCL needs a GPU, such as cuda:0, and is given ",
                   device.str(), "; ", found, " GPUs were found"));
}

absl::StatusOr<NcclPtr> AsNccl(const BackendPtr& backend) {
  NcclPtr nccl = c10::dynamic_intrusive_pointer_cast<ProcessGroupNCCL>(backend);
  if (nccl.defined()) return nccl;
  return absl::InvalidArgumentError(
      "a communicator of NCCL is to be split from one of another backend");
}

absl::StatusOr<c10::intrusive_ptr<ProcessGroupNCCL::Options>> OptionsFor(
    const NcclOptions& options) {
  auto nccl = ProcessGroupNCCL::Options::create(options.high_priority_stream);
  nccl->timeout = options.watchdog_timeout;
  nccl->config.blocking = 0;
  nccl->group_name = options.name;
  nccl->global_ranks_in_group = options.rank_names;
  if (options.split_from.defined()) {
    TANDEM_ASSIGN_OR_RETURN(nccl->split_from, AsNccl(options.split_from));
    nccl->split_color = options.color;
  }
  return nccl;
}

void ReduceOneElement(ProcessGroupNCCL& nccl, c10::Device device) {
  std::vector<at::Tensor> tensors = {
      at::zeros({1}, at::TensorOptions().device(device))};
  nccl.allreduce(tensors)->wait();
}

void EagerlyConnect(ProcessGroupNCCL& nccl, c10::Device device) {
  const c10::DeviceGuard guard(device);
  nccl.eagerConnectSingleDevice(device);
  ReduceOneElement(nccl, device);
}

}  // namespace

absl::StatusOr<BackendPtr> MakeNcclBackend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    c10::Device device, const NcclOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckDevice(device));
  for (const c10::Device& each : options.further_devices) {
    TANDEM_RETURN_IF_ERROR(CheckDevice(each));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto nccl_options, OptionsFor(options));
  return CatchTorchOr(
      [&]() -> BackendPtr {
        auto nccl = c10::make_intrusive<ProcessGroupNCCL>(store, rank, size,
                                                          nccl_options);
        nccl->setGroupUid(options.name);
        nccl->setGroupDesc(options.name);
        // A bound device is the only one.
        if (options.further_devices.empty()) nccl->setBoundDeviceId(device);
        EagerlyConnect(*nccl, device);
        for (const c10::Device& each : options.further_devices) {
          EagerlyConnect(*nccl, each);
        }
        return nccl;
      },
      absl::StrCat("make NCCL's communicator ", options.name));
}

absl::Status JoinNcclSplit(const BackendPtr& parent, c10::Device device) {
  TANDEM_ASSIGN_OR_RETURN(const NcclPtr nccl, AsNccl(parent));
  return CatchTorch([&] { nccl->performNocolorSplit(device); },
                    "take part in the split of NCCL's communicator");
}

#else

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeNcclBackend(
    const c10::intrusive_ptr<c10d::Store>&, int, int, c10::Device,
    const NcclOptions&) {
  return CheckNcclIsBuilt();
}

absl::Status JoinNcclSplit(const c10::intrusive_ptr<c10d::Backend>&,
                           c10::Device) {
  return CheckNcclIsBuilt();
}

#endif

}  // namespace tandem
