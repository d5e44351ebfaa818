// How the ranks of several hosts meet.

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend/hierarchical_backend.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

StorePtr Prefixed(const StorePtr& store, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<HierarchicalBackend>>
HierarchicalBackend::Create(const StorePtr& store, int rank,
                            const HostLayout& layout,
                            std::chrono::milliseconds timeout,
                            const std::vector<int>& names, MakeGloo make_gloo,
                            int64_t chunk_bytes) {
  const int host = layout.host[rank];
  const std::vector<int>& ranks = layout.ranks[host];
  std::vector<int> local_names;
  for (int each : ranks) {
    local_names.push_back(names.empty() ? each : names[each]);
  }
  TANDEM_ASSIGN_OR_RETURN(
      c10::intrusive_ptr<ShmBackend> local,
      ShmBackend::Create(Prefixed(store, absl::StrCat("host ", host)),
                         layout.local[rank], static_cast<int>(ranks.size()),
                         timeout, std::move(local_names)));
  BackendPtr leaders;
  if (layout.local[rank] == 0) {
    TANDEM_ASSIGN_OR_RETURN(leaders, make_gloo(Prefixed(store, "leaders"), host,
                                               layout.host_count()));
  }
  TANDEM_ASSIGN_OR_RETURN(BackendPtr all,
                          make_gloo(Prefixed(store, "all"), rank,
                                    static_cast<int>(layout.host.size())));
  return c10::make_intrusive<HierarchicalBackend>(
      rank, layout, std::move(local), std::move(leaders), std::move(all),
      chunk_bytes);
}

}  // namespace tandem
