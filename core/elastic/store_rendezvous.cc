#include "core/elastic/store_rendezvous.h"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/store/store.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Phase = NodeState::Phase;

// Beside the attempts' own keys, which have a prefix each.
constexpr char kGroupKey[] = "tandem/elastic/group";

std::string KeyOf(int node) { return absl::StrCat("tandem/elastic/", node); }

// What node 0 knows of the others, by node.
std::map<int, NodeState> ReadStates(c10d::Store& store, int nnodes) {
  std::map<int, NodeState> states;
  for (int node = 0; node < nnodes; ++node) {
    const std::optional<NodeState> state =
        DecodeNodeState(TextAt(store, KeyOf(node)));
    if (state) states[node] = *state;
  }
  return states;
}

class StoreRendezvous : public NodeRendezvous {
 public:
  StoreRendezvous(const RankCounts& counts,
                  const StoreRendezvousOptions& options)
      : options_(options), coordinator_(counts, options.coordinator) {
    state_.ranks = options.coordinator.ranks_per_node;
    state_.launcher = std::random_device()();
    thread_ = std::thread([this] { Meet(); });
  }
  ~StoreRendezvous() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Wait(int first) override { Say(Phase::kWaiting, first); }
  void Run(int attempt) override { Say(Phase::kRunning, attempt); }
  absl::StatusOr<NodeGroup> Group() const override;
  void Leave(bool done, const std::string& why) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void Say(Phase phase, int attempt);
  void Meet();
  absl::Status Connect();
  absl::Status Beat();
  absl::StatusOr<std::string> Exchange(const NodeState& state);
  absl::Status Decide(const std::optional<std::string>& end);
  absl::Status Take(const std::string& text);

  const StoreRendezvousOptions options_;
  NodeCoordinator coordinator_;  // node 0's; of the thread alone
  CallThread calls_;
  StorePtr store_;    // of the thread alone, and so is the next
  std::string told_;  // what this node wrote last
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  NodeState state_;
  NodeGroup group_;
  absl::Status lost_;
  std::optional<std::string> end_;  // why node 0 ends the job
  int beats_since_leave_ = 0;       // that told of it
  bool ends_ = false;               // the thread
  std::thread thread_;
};

absl::StatusOr<NodeGroup> StoreRendezvous::Group() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!lost_.ok()) return lost_;
  return group_;
}

void StoreRendezvous::Say(Phase phase, int attempt) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_.phase = phase;
    state_.attempt = attempt;
    ++state_.beat;
  }
  changed_.notify_all();
}

void StoreRendezvous::Leave(bool done, const std::string& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (options_.node == 0) end_ = why;
  }
  Say(done ? Phase::kDone : Phase::kLeft, /*attempt=*/0);
  // Node 0 takes the store with it: the others need a beat to read from it.
  const int beats = options_.node == 0 ? 4 : 1;
  Lock lock(mutex_);
  changed_.wait_for(lock, 2 * beats * options_.beat,
                    [&] { return beats_since_leave_ >= beats || !lost_.ok(); });
}

void StoreRendezvous::Meet() {
  absl::Status status = Connect();
  while (status.ok()) {
    Lock lock(mutex_);
    const int64_t said = state_.beat;
    changed_.wait_for(lock, options_.beat,
                      [&] { return ends_ || state_.beat != said; });
    if (ends_) return;
    lock.unlock();
    status = Beat();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_ = status;
  }
  changed_.notify_all();
}

absl::Status StoreRendezvous::Connect() {
  const auto until = Clock::now() + options_.coordinator.form_timeout;
  for (;;) {
    // In pieces: a launcher that is to end does not wait for a store.
    absl::StatusOr<StorePtr> store =
        ConnectTcpStore(options_.host, options_.port, 2 * options_.beat);
    if (store.ok()) {
      store_ = *std::move(store);
      return Beat();
    }
    const bool may_come = absl::IsDeadlineExceeded(store.status()) ||
                          absl::IsUnavailable(store.status());
    if (!may_come || Clock::now() >= until) return store.status();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ends_) return absl::CancelledError("this launcher ends");
  }
}

// Writes what this node says; what node 0 says of the group. AlreadyExists,
// and nothing is written, where another launcher has taken this one's place.
absl::StatusOr<std::string> StoreRendezvous::Exchange(const NodeState& state) {
  const std::string text = state.Encode();
  return calls_.Within<std::string>(
      options_.patience,
      [store = store_, key = KeyOf(options_.node), text,
       before = std::exchange(told_, text)]() -> absl::StatusOr<std::string> {
        // The first takes the place. In one step, or the earlier of two
        // launchers would look, and write after the later has come.
        if (before.empty()) {
          store->set(key, text);
        } else if (store->compareSet(key, before, text) != text) {
          return absl::AlreadyExistsError("another launcher of this node");
        }
        return TextAt(*store, kGroupKey);
      });
}

absl::Status StoreRendezvous::Beat() {
  NodeState state;
  std::optional<std::string> end;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++state_.beat;
    state = state_;
    end = end_;
  }
  const auto group = Exchange(state);
  if (absl::IsAlreadyExists(group.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat("another launcher with --node_rank=", options_.node,
                     " has come and taken this one's place"));
  }
  if (!group.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "node 0's launcher, which serves the store at ", options_.host, ":",
        options_.port, ", is not heard of (", group.status().message(), ")"));
  }
  TANDEM_RETURN_IF_ERROR(Take(*group));
  if (options_.node == 0) TANDEM_RETURN_IF_ERROR(Decide(end));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // `state` is what was written.
    const bool left =
        state.phase == Phase::kDone || state.phase == Phase::kLeft;
    if (left) ++beats_since_leave_;
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status StoreRendezvous::Take(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const std::optional<NodeGroup> group = DecodeNodeGroup(text);
  if (!group) return absl::DataLossError("the store's group cannot be read");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (group->ranks_per_node != state_.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node 0 starts ", group->ranks_per_node, " ranks, this node ",
        state_.ranks, ": give all nodes the same --nproc_per_node"));
  }
  group_ = *group;
  return absl::OkStatus();
}

absl::Status StoreRendezvous::Decide(const std::optional<std::string>& end) {
  TANDEM_ASSIGN_OR_RETURN(
      const auto states,
      (calls_.Within<std::map<int, NodeState>>(
          options_.patience, [store = store_, nnodes = options_.nnodes] {
            return ReadStates(*store, nnodes);
          })));
  const NodeGroup& group =
      end ? coordinator_.End(*end) : coordinator_.Decide(states, Clock::now());
  // This node reads it with its next beat: no sooner than the others.
  const std::string text = group.Encode();
  return calls_
      .Within<bool>(options_.patience,
                    [store = store_, text] {
                      store->set(kGroupKey, text);
                      return true;
                    })
      .status();
}

}  // namespace

std::unique_ptr<NodeRendezvous> MeetAtStore(
    const RankCounts& counts, const StoreRendezvousOptions& options) {
  return std::make_unique<StoreRendezvous>(counts, options);
}

}  // namespace tandem
