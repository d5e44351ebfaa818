#include "core/shm/group.h"

#include <glog/logging.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/shm/memory/segment.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<ShmMonitor>> ShmMonitor::Create(
    ShmSegment* segment, const std::vector<ShmPeer>* peers) {
  OwnedFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return absl::ErrnoToStatus(errno, "watching ranks: eventfd");
  return absl::WrapUnique(new ShmMonitor(segment, peers, std::move(stop)));
}

ShmMonitor::ShmMonitor(ShmSegment* segment, const std::vector<ShmPeer>* peers,
                       OwnedFd stop)
    : segment_(segment), stop_(std::move(stop)) {
  for (const ShmPeer& peer : *peers) {
    // It tells of a process whose sockets a child of it has inherited. Threads
    // of this process have none.
    processes_.push_back(ShareProcess(peer.pid));
  }
  thread_ = std::thread([this, peers] { Run(*peers); });
}

ShmMonitor::~ShmMonitor() {
  const uint64_t one = 1;
  CHECK_EQ(write(stop_.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  thread_.join();
}

void ShmMonitor::Run(const std::vector<ShmPeer>& peers) {
  // The stop signal, then two descriptors a rank; negative ones are ignored.
  // Peers send nothing after the first message, so that input is the end.
  std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0}};
  for (size_t r = 0; r < peers.size(); ++r) {
    watched.push_back({peers[r].socket.get(), POLLIN, 0});
    watched.push_back({processes_[r] ? processes_[r]->get() : -1, POLLIN, 0});
  }
  for (;;) {
    if (poll(watched.data(), watched.size(), -1) < 0) {
      CHECK_EQ(errno, EINTR) << "poll";
      continue;
    }
    if (watched[0].revents != 0) return;
    for (size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      watched[i].fd = -1;
      segment_->SetState(static_cast<int>(i - 1) / 2, ShmRankState::kDied);
    }
  }
}

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
  mail_ = std::make_unique<ShmPointToPoint>(&segment_, rank, &connections_);
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
