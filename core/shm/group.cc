#include "core/shm/group.h"

#include <unistd.h>

#include <utility>

#include "core/base/status_macros.h"
#include "core/shm/memory/states.h"

namespace tandem {

absl::StatusOr<std::shared_ptr<ShmGroup>> ShmGroup::Create(
    const StorePtr& store, int rank, int size,
    std::chrono::milliseconds timeout, std::vector<int> names) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<ShmArena> arena,
                          ShmArena::OfProcess());
  TANDEM_ASSIGN_OR_RETURN(
      ShmConnections connections,
      ConnectShm(store, rank, size, arena->fd(), timeout, names));
  TANDEM_ASSIGN_OR_RETURN(
      ShmSegment segment,
      ShmSegment::Map(std::move(connections.segment), size));
  segment.set_names(std::move(names));
  const std::shared_ptr<ShmGroup> group(
      new ShmGroup(rank, std::move(segment), std::move(connections), arena));
  TANDEM_ASSIGN_OR_RETURN(
      group->monitor_,
      ShmMonitor::Create(&group->segment_, &group->connections_.peers));
  return group;
}

ShmGroup::ShmGroup(int rank, ShmSegment segment, ShmConnections connections,
                   std::shared_ptr<ShmArena> arena)
    : rank_(rank),
      segment_(std::move(segment)),
      connections_(std::move(connections)),
      arena_(std::move(arena)) {
  segment_.page(rank).pid.store(getpid());
  queue_ = std::make_unique<ShmQueue>(&segment_, rank, &connections_);
  mail_ = std::make_unique<ShmMail>(&segment_, rank, &connections_);
}

absl::Status ShmGroup::CheckPeers() const {
  return CheckPresence(segment_, rank_, [this](int r) { return r != rank_; });
}

ShmGroup::~ShmGroup() { Close(); }

void ShmGroup::Close() {
  absl::call_once(closed_, [this] {
    queue_->Close();
    mail_->Close();
    segment_.SetState(rank_, ShmRankState::kLeft);
    monitor_.reset();
    for (ShmPeer& peer : connections_.peers) peer.socket = OwnedFd();
  });
}

}  // namespace tandem
