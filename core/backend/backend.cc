#include "core/backend/backend.h"

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/backend/gloo_backend.h"
#include "core/backend/hierarchical_backend.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/shm/backend.h"
#include "core/store/store.h"

namespace tandem {
namespace {

using MakeBackend = absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> (*)(
    const c10::intrusive_ptr<c10d::Store>& store, int rank,
    const std::vector<std::string>& hosts, const CommunicatorOptions& options);

struct KnownBackend {
  const char* name;
  c10::DeviceType device;
  c10d::ProcessGroup::BackendType type;
  MakeBackend make;
  bool multiplies;  // does an all-reduce take PREMUL_SUM?
};

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeShmBackend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank,
    const std::vector<std::string>& hosts, const CommunicatorOptions& options) {
  const HostLayout layout(hosts);
  if (layout.host_count() == 1) {
    return ShmBackend::Create(store, rank, static_cast<int>(hosts.size()),
                              options.timeout, options.rank_names);
  }
  return HierarchicalBackend::Create(
      store, rank, layout, options.timeout, options.rank_names,
      [&](const StorePtr& its, int its_rank, int its_size) {
        return MakeGlooBackend(its, its_rank, its_size, options);
      });
}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeGloo(
    const c10::intrusive_ptr<c10d::Store>& store, int rank,
    const std::vector<std::string>& hosts, const CommunicatorOptions& options) {
  return MakeGlooBackend(store, rank, static_cast<int>(hosts.size()), options);
}

constexpr KnownBackend kBackends[] = {
    {"shm", c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
     &MakeShmBackend, true},
    {"gloo", c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
     &MakeGloo, false},
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
    const c10::intrusive_ptr<c10d::Store>& store, int rank,
    const std::vector<std::string>& hosts, const CommunicatorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const KnownBackend* known,
                          FindBackend(options.backend));
  TANDEM_ASSIGN_OR_RETURN(c10::intrusive_ptr<c10d::Backend> backend,
                          known->make(store, rank, hosts, options));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(
      store, rank, static_cast<int>(hosts.size()));
  group->setBackend(known->device, known->type, backend);
  group->setDefaultBackend(known->type);
  return group;
}

void AbortBackends(c10d::ProcessGroup& group, const std::string& reason) {
  for (const c10::Device& device : group.getDeviceTypes()) {
    const auto backend = group.getBackend(device.type());
    if (auto* shm = dynamic_cast<ShmBackend*>(backend.get())) {
      shm->Abort(reason);
    } else if (auto* hosts =
                   dynamic_cast<HierarchicalBackend*>(backend.get())) {
      hosts->Abort(reason);
    } else {
      backend->abort();
    }
  }
}

bool BackendMultiplies(const std::string& name) {
  const absl::StatusOr<const KnownBackend*> known = FindBackend(name);
  return known.ok() && (*known)->multiplies;
}

}  // namespace tandem
