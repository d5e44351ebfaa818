#include "core/shm/memory/connect.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/host_resources.h"
#include "core/shm/memory/local_socket.h"
#include "core/shm/memory/segment.h"
#include "core/store/gather.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMagic = 0x74616e64656d0002;  // "tandem", version 2
// A rank that was stopped before it could send its message is dropped as a
// stranger is, and may come again.
constexpr int kTries = 3;

// What two ranks tell each other first. The layout of what they will share
// must be the same.
struct Hello {
  char secret[32] = {};  // of the rank that is connected to
  uint64_t magic = kMagic;
  int32_t rank = 0;
  int32_t size = 0;
  uint64_t page_bytes = sizeof(ShmRankPage);
  uint64_t slot_bytes = kSlotBytes;
  uint64_t mail_bytes = kMailBytes;
  cpu_set_t cpus{};
};

// The most ranks of this host that any group of this process has had, `size`
// included: those of a small group share their cores with all of them.
int MostRanksSeen(int size) {
  static std::atomic<int> most{0};
  int seen = most.load();
  while (seen < size && !most.compare_exchange_weak(seen, size)) {
  }
  return std::max(seen, size);
}

class Connector {
 public:
  Connector(const StorePtr& store, int rank, int size, int arena,
            std::chrono::milliseconds timeout, const std::vector<int>& names)
      : store_(store),
        names_(names),
        size_(size),
        arena_(arena),
        timeout_(timeout),
        deadline_(Clock::now() + timeout) {
    mine_.rank = rank;
    mine_.size = size;
    sched_getaffinity(0, sizeof(mine_.cpus), &mine_.cpus);
    cpus_ = mine_.cpus;
    made_.peers.resize(size);
  }

  absl::StatusOr<ShmConnections> Run() {
    TANDEM_RETURN_IF_ERROR(ConnectToAll());
    const double cores = std::min<double>(CPU_COUNT(&cpus_), CpuQuota());
    const int ranks = MostRanksSeen(size_);
    made_.core_for_each = cores >= ranks;
    made_.two_cores_for_each = cores >= 2 * ranks;
    return std::move(made_);
  }

 private:
  int RankName(int rank) const { return names_.empty() ? rank : names_[rank]; }

  absl::Status ConnectToAll() {
    TANDEM_ASSIGN_OR_RETURN(AuthenticatedListener listener,
                            AuthenticatedListener::Open());
    if (mine_.rank == 0) {
      TANDEM_ASSIGN_OR_RETURN(made_.segment, ShmSegment::NewMemory(size_));
    }
    TANDEM_ASSIGN_OR_RETURN(
        const GatheredTexts sockets,
        GatherAtStore(*store_, "shm", mine_.rank, size_,
                      absl::StrCat(listener.name(), " ", listener.secret()),
                      timeout_));
    for (int r = 0; r < mine_.rank; ++r) {
      TANDEM_RETURN_IF_ERROR(
          Annotate(ConnectTo(r, sockets[r]),
                   absl::StrCat("connect to rank ", RankName(r))));
    }
    for (int r = mine_.rank + 1; r < size_; ++r) {
      TANDEM_RETURN_IF_ERROR(AcceptOne(listener));
    }
    return absl::OkStatus();
  }

  absl::Status ConnectTo(int rank,
                         const std::optional<std::string>& published) {
    if (!published.has_value()) {
      return absl::DeadlineExceededError("it did not say where it listens");
    }
    const std::pair<std::string, std::string> listener =
        absl::StrSplit(*published, absl::MaxSplits(' ', 1));
    absl::Status status;
    for (int tries = 0; tries < kTries; ++tries) {
      status = TryConnect(rank, listener.first, listener.second);
      if (!absl::IsUnavailable(status)) return status;
    }
    return status;
  }

  absl::Status TryConnect(int rank, const std::string& name,
                          const std::string& secret) {
    TANDEM_ASSIGN_OR_RETURN(LocalPeer peer, ConnectLocal(name, deadline_));
    TANDEM_RETURN_IF_ERROR(SendHello(peer, secret, {arena_}));
    Hello theirs;
    const int fds = rank == 0 ? 2 : 1;
    TANDEM_ASSIGN_OR_RETURN(
        std::vector<OwnedFd> received,
        ReceiveWithFds(peer.fd.get(), &theirs, sizeof(theirs), fds, deadline_));
    if (rank == 0) made_.segment = std::move(received[1]);
    if (theirs.rank != rank) theirs.magic = 0;
    return Note(theirs, std::move(peer), std::move(received[0]));
  }

  absl::Status SendHello(const LocalPeer& peer, const std::string& secret,
                         const std::vector<int>& fds) {
    secret.copy(mine_.secret, sizeof(mine_.secret));
    return SendWithFds(peer.fd.get(), &mine_, sizeof(mine_), fds);
  }

  absl::Status AcceptOne(AuthenticatedListener& listener) {
    Hello theirs;
    absl::StatusOr<AuthenticatedListener::Connection> came =
        listener.Next(&theirs, sizeof(theirs), 1, deadline_);
    if (absl::IsDeadlineExceeded(came.status())) return NobodyCame();
    TANDEM_RETURN_IF_ERROR(came.status());
    AuthenticatedListener::Connection connection = *std::move(came);
    std::vector<int> fds = {arena_};
    if (mine_.rank == 0) fds.push_back(made_.segment.get());
    TANDEM_RETURN_IF_ERROR(SendHello(connection.peer, listener.secret(), fds));
    return Annotate(
        Note(theirs, std::move(connection.peer), std::move(connection.fds[0])),
        "connection from a further rank");
  }

  absl::Status NobodyCame() const {
    std::vector<int> missing;
    for (int r = mine_.rank + 1; r < size_; ++r) {
      if (!made_.peers[r].socket) missing.push_back(RankName(r));
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "no connection from rank ", ShortList(missing), " within the timeout"));
  }

  absl::Status Note(const Hello& theirs, LocalPeer peer, OwnedFd arena) {
    if (theirs.magic != mine_.magic || theirs.size != mine_.size ||
        theirs.page_bytes != mine_.page_bytes ||
        theirs.slot_bytes != mine_.slot_bytes ||
        theirs.mail_bytes != mine_.mail_bytes || theirs.rank < 0 ||
        theirs.rank >= size_ || made_.peers[theirs.rank].socket) {
      return absl::FailedPreconditionError(
          "the process at the other end is not a rank of this group, or runs "
          "another version of this program");
    }
    CPU_OR(&cpus_, &cpus_, &theirs.cpus);
    made_.peers[theirs.rank] =
        ShmPeer{std::move(peer.fd), ShareFile(std::move(arena)), peer.pid};
    return absl::OkStatus();
  }

  const StorePtr store_;
  const std::vector<int> names_;
  const int size_;
  const int arena_;
  const std::chrono::milliseconds timeout_;
  const SocketDeadline deadline_;
  Hello mine_;
  cpu_set_t cpus_;
  ShmConnections made_;
};

}  // namespace

absl::StatusOr<ShmConnections> ConnectShm(const StorePtr& store, int rank,
                                          int size, int arena,
                                          std::chrono::milliseconds timeout,
                                          const std::vector<int>& names) {
  return Connector(store, rank, size, arena, timeout, names).Run();
}

namespace {

// The entries that somebody holds.
template <typename Key>
class Table {
 public:
  SharedFd Find(const Key& key) const {
    const auto found = held_.find(key);
    return found == held_.end() ? nullptr : found->second.lock();
  }

  SharedFd Add(const Key& key, OwnedFd fd) {
    for (auto it = held_.begin(); it != held_.end();) {
      it = it->second.expired() ? held_.erase(it) : std::next(it);
    }
    auto shared = std::make_shared<const OwnedFd>(std::move(fd));
    held_[key] = shared;
    return shared;
  }

 private:
  std::map<Key, std::weak_ptr<const OwnedFd>> held_;
};

absl::Mutex& TableMutex() {
  static auto* const mutex = new absl::Mutex;
  return *mutex;
}

bool HasEnded(int pidfd) {
  pollfd one{pidfd, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace

SharedFd ShareFile(OwnedFd fd) {
  static auto* const files = new Table<std::pair<dev_t, ino_t>>;
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) {
    return std::make_shared<const OwnedFd>(std::move(fd));
  }
  const std::pair<dev_t, ino_t> key(status.st_dev, status.st_ino);
  absl::MutexLock lock(&TableMutex());
  SharedFd shared = files->Find(key);
  return shared != nullptr ? shared : files->Add(key, std::move(fd));
}

SharedFd ShareProcess(pid_t pid) {
  static auto* const processes = new Table<pid_t>;
  if (pid <= 0 || pid == getpid()) return nullptr;
  absl::MutexLock lock(&TableMutex());
  SharedFd shared = processes->Find(pid);
  // The number may be another process's by now.
  if (shared != nullptr && !HasEnded(shared->get())) return shared;
  constexpr int kPidfdOpen = 434;
  OwnedFd fd(static_cast<int>(syscall(kPidfdOpen, pid, 0)));
  return fd ? processes->Add(pid, std::move(fd)) : nullptr;
}

}  // namespace tandem
