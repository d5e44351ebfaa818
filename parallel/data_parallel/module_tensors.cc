#include "parallel/data_parallel/module_tensors.h"

#include <ATen/core/Tensor.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/channel/copy_channel.h"

namespace tandem {
namespace {

absl::Status CheckOn(const NamedTensors& tensors, const char* kind,
                     c10::Device device) {
  for (const auto& [name, tensor] : tensors) {
    if (IsOn(tensor, device)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the module must have its parameters and buffers on device ",
        device.str(), " (the first of device_ids), but ", kind, " ", name,
        " is on ", tensor.device().str(), ": move it there with module->to(\"",
        device.str(), "\")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOnDevice(const ModuleTensors& module, c10::Device device) {
  TANDEM_RETURN_IF_ERROR(CheckOn(module.parameters, "parameter", device));
  return CheckOn(module.buffers, "buffer", device);
}

}  // namespace tandem
