#include "core/comm/communicator_tensors.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/backend/backend_names.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/device/host_memory.h"

namespace tandem {
namespace {

// "the CPU, sim:0, sim:1".
std::string Served(const Communicator& group) {
  std::string served = "the CPU";
  if (!group.device().has_value()) return served + " alone";
  absl::StrAppend(&served, ", ", group.device()->str());
  for (const c10::Device& each : group.options().further_devices) {
    absl::StrAppend(&served, ", ", each.str());
  }
  return served;
}

// Why the group does not take it; empty: it does.
std::string Refusal(const Communicator& group, const at::Tensor& tensor) {
  if (group.process_group() == nullptr) return "";
  if (!IsOnStreams(group, tensor)) {
    return RunsCpuKernels(tensor.device().type()) ||
                   group.options().stages_on_host
               ? ""
               : absl::StrCat("backend ", group.backend(), " does not take ",
                              DescribeType(tensor));
  }
  if (group.device() == tensor.device() ||
      absl::c_linear_search(group.options().further_devices, tensor.device())) {
    return "";
  }
  return absl::StrCat("it has a communicator for tensors of ", Served(group),
                      ", and was given ", DescribeType(tensor),
                      "; CommunicatorOptions::device and further_devices say "
                      "for which devices to make some");
}

}  // namespace

CollectiveRunner* GroupRunner(const Communicator& group) {
  return group.runner_.get();
}

bool IsOnStreams(const Communicator& group, const at::Tensor& tensor) {
  return group.backend_names().HasStreams(tensor.device().type());
}

CollectiveRunner::Place RunPlace(const at::Tensor& given) {
  using Place = CollectiveRunner::Place;
  if (given.is_cpu()) return {Place::kHost};
  return {Place::kStream, given.device()};
}

bool Multiplies(const Communicator& group, double factor,
                const at::Tensor& tensor) {
  if (factor == 1) return true;
  const BackendNames& names = group.backend_names();
  const std::string& backend =
      IsOnStreams(group, tensor) ? names.device : names.host;
  return group.size() > 1 &&
         BackendMultiplies(backend, tensor.scalar_type(), factor);
}

void Multiply(const Communicator& group, double factor,
              const at::Tensor& tensor, c10d::ReduceOp* operation) {
  if (factor == 1) return;
  if (Multiplies(group, factor, tensor)) {
    *operation = c10d::makePreMulSum(factor);
  } else {
    MultiplyInPlace(tensor.detach(), factor);
  }
}

at::Tensor ForBackend(const Communicator& group, const at::Tensor& tensor) {
  if (IsOnStreams(group, tensor)) return tensor.detach();
  at::Tensor host = HostView(tensor);
  return host.defined() ? host : tensor.detach().cpu();
}

PendingCollective WithCopyBack(PendingCollective pending,
                               const at::Tensor& given,
                               const at::Tensor& tensor) {
  const c10::DeviceType type = tensor.device().type();
  if (given.device() == tensor.device() || RunsCpuKernels(type)) return pending;
  return std::move(pending).Then([given, tensor] {
    return CatchTorch([&] { tensor.detach().copy_(given); },
                      "copying from the host");
  });
}

FlightOperation TensorFlight(const char* name, const at::Tensor& tensor,
                             int peer) {
  FlightOperation operation;
  operation.name = name;
  operation.peer = peer;
  if (!tensor.defined()) return operation;
  operation.dtype = c10::toString(tensor.scalar_type());
  operation.sizes = {tensor.sizes().data(), tensor.sizes().size()};
  return operation;
}

c10d::Backend& TensorBackend(const Communicator& group,
                             const at::Tensor& given) {
  return *group.process_group()->getBackend(given.device().type());
}

std::string DescribeType(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), " on ",
                      tensor.device().str());
}

absl::Status CheckTensor(const Communicator& group, absl::string_view operation,
                         const at::Tensor& tensor) {
  std::string fault;
  if (!tensor.defined()) {
    fault = "the tensor is undefined";
  } else if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    fault = "the tensor must be dense and contiguous: call contiguous() first";
  } else if (tensor.is_conj() || tensor.is_neg()) {
    fault =
        "the tensor is a conjugate or negative view, whose memory has other "
        "values: call resolve_conj() and resolve_neg() first";
  } else {
    fault = Refusal(group, tensor);
    if (fault.empty()) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", group.name(), "\": ", fault));
}

absl::Status CheckSummand(const Communicator& group, const char* operation,
                          const at::Tensor& tensor) {
  TANDEM_RETURN_IF_ERROR(CheckTensor(group, operation, tensor));
  if (tensor.scalar_type() != at::kBool && !tensor.is_complex()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", group.name(), "\": cannot sum ",
                   DescribeType(tensor), "; convert it first"));
}

}  // namespace tandem
