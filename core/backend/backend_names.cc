#include "core/backend/backend_names.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/tensors.h"

namespace tandem {
namespace {

enum class TakesFactor { kNo, kInDouble, kInTensorsDtype };

struct KnownBackend {
  const char* name;
  const char* device;  // as --device has it
  c10::DeviceType type;
  TakesFactor takes_factor;
};

constexpr KnownBackend kBackends[] = {
    {"shm", "cpu", c10::DeviceType::CPU, TakesFactor::kInDouble},
    {"gloo", "cpu", c10::DeviceType::CPU, TakesFactor::kNo},
    {"sim_nccl", "sim", c10::DeviceType::PrivateUse1,
     TakesFactor::kInTensorsDtype},
    {"nccl", "cuda", c10::DeviceType::CUDA, TakesFactor::kInTensorsDtype},
    // The backend of imagined devices, whose tensors are shapes
    // (core/sim/links).
    {"sim_links", "sim", c10::DeviceType::PrivateUse1,
     TakesFactor::kInTensorsDtype},
    // What stands beside it where one rank rehearses a group alone.
    {"alone", "cpu", c10::DeviceType::CPU, TakesFactor::kInDouble},
};

const KnownBackend* Find(absl::string_view name) {
  for (const KnownBackend& each : kBackends) {
    if (name == each.name) return &each;
  }
  return nullptr;
}

absl::Status Unknown(absl::string_view text) {
  std::string known;
  for (const KnownBackend& each : kBackends) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", each.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no backend is called \"", text, "\"; known are: ", known,
                   "; two at once as in cpu:gloo,sim:sim_nccl"));
}

}  // namespace

absl::StatusOr<BackendNames> ParseBackend(absl::string_view text) {
  BackendNames names;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> device_and_name =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    const KnownBackend* const known = Find(device_and_name.back());
    if (known == nullptr || (device_and_name.size() == 2 &&
                             device_and_name.front() != known->device)) {
      return Unknown(text);
    }
    if (known->type == c10::DeviceType::CPU) {
      names.host = known->name;
    } else {
      names.device = known->name;
      names.device_type = known->type;
    }
  }
  return names;
}

bool BackendMultiplies(absl::string_view name, c10::ScalarType dtype,
                       double factor) {
  const KnownBackend* const known = Find(name);
  if (known == nullptr || known->takes_factor == TakesFactor::kNo) return false;
  if (known->takes_factor == TakesFactor::kInDouble ||
      !c10::isReducedFloatingType(dtype)) {
    return true;
  }
  return (dtype == at::kBFloat16 || dtype == at::kHalf) &&
         RoundedTo(dtype, factor) == factor;
}

}  // namespace tandem
