#include "core/shm/memory/local_door.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// A rank sends its message right after it has connected.
constexpr std::chrono::seconds kManners(5);
// Beyond so many that say nothing, the one that has waited longest goes.
constexpr size_t kMostWaiting = 256;
constexpr int kBacklog = 4096;  // the system has a limit of its own

int PollTime(SocketDeadline until) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
}

}  // namespace

absl::StatusOr<LocalDoor> LocalDoor::Open() {
  TANDEM_ASSIGN_OR_RETURN(LocalListener listener, ListenLocal(kBacklog));
  TANDEM_ASSIGN_OR_RETURN(std::string secret, RandomCharacters());
  return LocalDoor(std::move(listener), std::move(secret));
}

absl::StatusOr<LocalDoor::Visitor> LocalDoor::Next(void* message, size_t bytes,
                                                   int fds,
                                                   SocketDeadline deadline) {
  while (true) {
    const SocketDeadline until =
        waiting_.empty() ? deadline
                         : std::min(deadline, waiting_.front().until);
    size_t speaking = 0;
    TANDEM_ASSIGN_OR_RETURN(const bool knocks, Listen(until, &speaking));
    for (; speaking > 0; --speaking) {
      Visitor visitor{std::move(waiting_.front().peer), {}};
      waiting_.pop_front();
      auto received = ReceiveWithFds(visitor.peer.fd.get(), message, bytes, fds,
                                     Clock::now());
      if (!received.ok() ||
          std::memcmp(message, secret_.data(), secret_.size()) != 0) {
        continue;
      }
      visitor.fds = *std::move(received);
      return visitor;
    }
    if (knocks) TANDEM_RETURN_IF_ERROR(Admit());
    DropTheSilent();
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError("local socket: timed out");
    }
  }
}

absl::StatusOr<bool> LocalDoor::Listen(SocketDeadline until, size_t* speaking) {
  std::vector<pollfd> watched = {{listener_.fd.get(), POLLIN, 0}};
  for (const Waiting& each : waiting_) {
    watched.push_back({each.peer.fd.get(), POLLIN, 0});
  }
  const int ready = poll(watched.data(), watched.size(), PollTime(until));
  if (ready < 0 && errno != EINTR) {
    return absl::ErrnoToStatus(errno, "local socket: poll");
  }
  if (ready <= 0) return false;
  std::list<Waiting> ones;
  auto each = waiting_.begin();
  for (size_t i = 1; i < watched.size(); ++i) {
    const auto one = each++;
    if (watched[i].revents != 0) ones.splice(ones.end(), waiting_, one);
  }
  *speaking = ones.size();
  waiting_.splice(waiting_.begin(), ones);
  return watched[0].revents != 0;
}

absl::Status LocalDoor::Admit() {
  absl::StatusOr<LocalPeer> peer =
      AcceptLocal(listener_.fd.get(), Clock::now());
  if (peer.ok()) {
    waiting_.push_back({*std::move(peer), Clock::now() + kManners});
    if (waiting_.size() > kMostWaiting) waiting_.pop_front();
    return absl::OkStatus();
  }
  const absl::Status& error = peer.status();
  // Another user's, or one that has gone again.
  if (absl::IsPermissionDenied(error) || absl::IsUnavailable(error) ||
      absl::IsDeadlineExceeded(error)) {
    return absl::OkStatus();
  }
  if (!absl::IsResourceExhausted(error) || waiting_.empty()) return error;
  // Without descriptors: the next one has that of who has waited longest.
  waiting_.pop_front();
  return absl::OkStatus();
}

void LocalDoor::DropTheSilent() {
  const auto now = Clock::now();
  while (!waiting_.empty() && waiting_.front().until <= now) {
    waiting_.pop_front();
  }
}

}  // namespace tandem
