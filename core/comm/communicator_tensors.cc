#include "core/comm/communicator_tensors.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

bool Serves(const c10d::ProcessGroup& group, const at::Tensor& tensor) {
  const bool is_host = RunsCpuKernels(tensor.device().type());
  const c10::DeviceType type =
      is_host ? c10::DeviceType::CPU : tensor.device().type();
  for (const c10::Device& device : group.getDeviceTypes()) {
    if (device.type() == type) return true;
  }
  return false;
}

}  // namespace

std::string TypeOf(const at::Tensor& tensor) {
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
  } else if (group.process_group() && !Serves(*group.process_group(), tensor)) {
    fault = absl::StrCat("backend ", group.backend(), " does not take ",
                         TypeOf(tensor));
  } else {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", group.name(), "\": ", fault));
}

}  // namespace tandem
