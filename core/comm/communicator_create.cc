// How groups of ranks come about.

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/backend/backend_names.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/collective_runner.h"
#include "core/comm/communicator.h"
#include "core/health/collective_check.h"
#include "core/health/group_member.h"
#include "core/launch/open_store.h"
#include "core/store/store.h"

namespace tandem {
namespace {

StorePtr InGroup(const std::string& key, const StorePtr& store) {
  return c10::make_intrusive<c10d::PrefixStore>(key, store);
}

// What starts the collectives of a group, not yet connected; null for a group
// of one rank. `store`: keys of the group alone.
std::unique_ptr<CollectiveRunner> NewRunner(
    const StorePtr& store, int rank, int size, const std::string& name,
    const CommunicatorOptions& options) {
  if (size == 1) return nullptr;
  GroupMember member = MemberOfWhole(store, rank, size, name);
  member.rank_names = options.rank_names;
  return std::make_unique<CollectiveRunner>(std::move(member), options);
}

size_t CommunicatorCount(const CommunicatorOptions& options) {
  return options.device.has_value() ? 1 + options.further_devices.size() : 0;
}

// `key` is the group's name among all that were ever made.
absl::Status Connect(const std::string& key, CollectiveRunner* runner) {
  if (runner == nullptr) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(runner->Connect(key));
  runner->process_group()->setGroupName(key);
  return absl::OkStatus();
}

absl::Status CheckPlace(int rank, int size, const std::string& name,
                        const CommunicatorOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("group \"", name, "\": there is no rank ", rank, " of ",
                     size, "; ranks count from 0"));
  }
  if (!options.device.has_value() && !options.further_devices.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("group \"", name,
                     "\": further_devices without a device; the first of "
                     "them is `device`"));
  }
  if (!options.rank_names.empty() &&
      options.rank_names.size() != static_cast<size_t>(size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("group \"", name, "\": ", options.rank_names.size(),
                     " names for ", size, " ranks"));
  }
  return absl::OkStatus();
}

// Rank `me` of the group must be in `ranks`, each of [0, size) once at most.
absl::Status CheckRanks(absl::Span<const int> ranks, int me, int size) {
  const std::set<int> unique(ranks.begin(), ranks.end());
  if (!unique.empty() && unique.size() == ranks.size() &&
      *unique.begin() >= 0 && *unique.rbegin() < size &&
      unique.count(me) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "ranks {", absl::StrJoin(ranks, ", "), "} must be different, in 0 .. ",
      size - 1, ", and this rank, ", me, ", one of them"));
}

}  // namespace

Communicator::Communicator(StorePtr store, int rank, int size, std::string name,
                           CommunicatorOptions options,
                           std::unique_ptr<CollectiveRunner> runner)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      name_(std::move(name)),
      options_(std::move(options)),
      runner_(std::move(runner)) {
  if (runner_ == nullptr) return;
  process_group_ = runner_->process_group();
  const absl::StatusOr<BackendNames> names = ParseBackend(options_.backend);
  CHECK(names.ok()) << "a group has been made with it: " << names.status();
  names_ = *names;
}

Communicator::~Communicator() = default;

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::ForLaunch(
    const Launch& launch, CommunicatorOptions options) {
  options.all_local = launch.nnodes == 1;
  options.master_host = launch.rendezvous.host;
  const char* debug = std::getenv("TORCH_DISTRIBUTED_DEBUG");
  TANDEM_ASSIGN_OR_RETURN(const bool checks,
                          AsksForCollectiveChecks(debug ? debug : ""));
  options.check_collectives = options.check_collectives || checks;
  TANDEM_RETURN_IF_ERROR(
      CheckPlace(launch.rank, launch.world_size, kWorldName, options));
  // Ranks that check would wait in vain for one that does not.
  options.settings["TORCH_DISTRIBUTED_DEBUG=DETAIL"] =
      checks ? "set" : "not set";
  // Their communicators are made one after the other, by all.
  options.settings["devices of a rank with communicators"] =
      absl::StrCat(CommunicatorCount(options));
  TANDEM_ASSIGN_OR_RETURN(StorePtr store, OpenStore(launch, options.timeout));
  store = InGroup(kWorldName, store);
  auto runner =
      NewRunner(store, launch.rank, launch.world_size, kWorldName, options);
  if (runner != nullptr) runner->WatchJob();
  TANDEM_RETURN_IF_ERROR(Connect(kWorldName, runner.get()));
  return absl::WrapUnique(
      new Communicator(std::move(store), launch.rank, launch.world_size,
                       kWorldName, std::move(options), std::move(runner)));
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    StorePtr store, int rank, int size, const std::string& name,
    const CommunicatorOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckPlace(rank, size, name, options));
  store = InGroup(name, store);
  auto runner = NewRunner(store, rank, size, name, options);
  TANDEM_RETURN_IF_ERROR(Connect(name, runner.get()));
  return absl::WrapUnique(new Communicator(std::move(store), rank, size, name,
                                           options, std::move(runner)));
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Subgroup(
    absl::Span<const int> ranks, const std::string& name,
    const SubgroupOptions& own) {
  absl::Status checked = CheckRanks(ranks, rank_, size_);
  if (!checked.ok()) {
    return Annotate(checked, absl::StrCat("subgroup \"", name, "\""));
  }
  // Other subgroups of this name may stand beside this one, or come after it.
  const std::string members =
      absl::StrCat(name, "/", absl::StrJoin(ranks, ","));
  const std::string key =
      absl::StrCat("sub/", members, "/", subgroups_[members]++);
  const int rank = static_cast<int>(
      std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  const int size = static_cast<int>(ranks.size());
  CommunicatorOptions options = options_;
  options.timeout *= own.patience;
  options.device = own.device;
  options.further_devices.clear();
  options.settings.clear();
  options.rank_names.clear();
  for (int each : ranks) options.rank_names.push_back(NameOf(each));
  StorePtr store = InGroup(key, store_);
  auto runner = NewRunner(store, rank, size, name, options);
  if (runner != nullptr && !own.has_own_fate) runner->WatchJobWith(*runner_);
  TANDEM_RETURN_IF_ERROR(Connect(key, runner.get()));
  return absl::WrapUnique(new Communicator(std::move(store), rank, size, name,
                                           std::move(options),
                                           std::move(runner)));
}

}  // namespace tandem
