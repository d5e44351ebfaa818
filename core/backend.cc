#include "core/backend.h"

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/gloo_backend.h"
#include "core/shm_backend.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

using MakeBackend = absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> (*)(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const CommunicatorOptions& options);

struct KnownBackend {
  const char* name;
  c10::DeviceType device;
  c10d::ProcessGroup::BackendType type;
  MakeBackend make;
  bool multiplies;  // does an all-reduce take PREMUL_SUM?
};

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeShmBackend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const CommunicatorOptions& options) {
  return ShmBackend::Create(store, rank, size, options.timeout);
}

constexpr KnownBackend kBackends[] = {
    {"shm", c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
     &MakeShmBackend, true},
    {"gloo", c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
     &MakeGlooBackend, false},
};

absl::StatusOr<const KnownBackend*> FindBackend(const std::string& name) {
  std::string known;
  for (const KnownBackend& backend : kBackends) {
    if (backend.name == name) return &backend;
    absl::StrAppend(&known, known.empty() ? "" : ", ", backend.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no backend is called \"", name, "\"; known are: ", known));
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> MakeProcessGroup(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const CommunicatorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const KnownBackend* known,
                          FindBackend(options.backend));
  TANDEM_ASSIGN_OR_RETURN(c10::intrusive_ptr<c10d::Backend> backend,
                          known->make(store, rank, size, options));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(known->device, known->type, backend);
  group->setDefaultBackend(known->type);
  return group;
}

bool BackendMultiplies(const std::string& name) {
  const absl::StatusOr<const KnownBackend*> known = FindBackend(name);
  return known.ok() && (*known)->multiplies;
}

}  // namespace tandem
