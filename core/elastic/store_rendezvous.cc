#include "core/elastic/store_rendezvous.h"

#include <glog/logging.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
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

std::string NodeKey(int node) { return absl::StrCat("tandem/elastic/", node); }

// What node 0 knows of the others, by node.
std::map<int, NodeState> ReadStates(c10d::Store& store, int nnodes) {
  std::map<int, NodeState> states;
  for (int node = 0; node < nnodes; ++node) {
    const std::optional<NodeState> state =
        DecodeNodeState(TextAt(store, NodeKey(node)));
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
  // May be called again, also after it has been done.
  template <typename T>
  using Question = std::function<absl::StatusOr<T>(c10d::Store&)>;

  void Say(Phase phase, int attempt);
  void Meet();
  absl::Status Connect(milliseconds limit);
  template <typename T>
  absl::StatusOr<T> Ask(const Question<T>& question);
  absl::Status CountSilence(Clock::time_point* since, milliseconds* silence);
  std::string NodeZero() const;
  void Tell(const std::string& line) const;
  bool Ends() const;
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
  int beats_since_leave_ = 0;       // sent since the leave
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
  absl::Status status = Connect(options_.coordinator.form_timeout);
  if (status.ok()) status = Beat();
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

bool StoreRendezvous::Ends() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ends_;
}

std::string StoreRendezvous::NodeZero() const {
  return absl::StrCat("node 0's launcher, which serves the store at ",
                      options_.host, ":", options_.port);
}

void StoreRendezvous::Tell(const std::string& line) const {
  if (options_.say != nullptr) {
    options_.say(line);
  } else {
    LOG(WARNING) << line;
  }
}

absl::Status StoreRendezvous::Connect(milliseconds limit) {
  const auto until = Clock::now() + limit;
  for (;;) {
    // In pieces: a launcher that is to end does not wait for a store.
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - Clock::now());
    absl::StatusOr<StorePtr> store = ConnectTcpStore(
        options_.host, options_.port,
        std::clamp(left, options_.one_try / 20, options_.one_try));
    if (store.ok()) {
      store_ = *std::move(store);
      store_->setTimeout(options_.one_try);  // not what was left
      return absl::OkStatus();
    }
    const bool may_come = absl::IsDeadlineExceeded(store.status()) ||
                          absl::IsUnavailable(store.status());
    if (!may_come || Clock::now() >= until) return store.status();
    if (Ends()) return absl::CancelledError("this launcher ends");
  }
}

// What the store answers.
template <typename T>
absl::StatusOr<T> StoreRendezvous::Ask(const Question<T>& question) {
  milliseconds silence(0);
  bool has_connected = false;
  for (;;) {
    std::future<absl::StatusOr<T>> answer = calls_.Start<T>(
        [question, store = store_] { return question(*store); });
    Clock::time_point since = Clock::now();
    while (answer.wait_for(options_.beat) != std::future_status::ready) {
      TANDEM_RETURN_IF_ERROR(CountSilence(&since, &silence));
    }
    absl::StatusOr<T> result = answer.get();
    if (absl::IsDeadlineExceeded(result.status())) {
      TANDEM_RETURN_IF_ERROR(CountSilence(&since, &silence));
    } else if (absl::IsUnavailable(result.status()) && !has_connected) {
      TANDEM_RETURN_IF_ERROR(Connect(options_.patience));
      has_connected = true;
    } else {
      if (result.ok() && silence >= options_.patience) {
        Tell(absl::StrCat(NodeZero(), ", answers again"));
      }
      return result;
    }
  }
}

// Adds the time since `since`, which becomes now, but a beat at most: the
// silence is what this process has waited, and not what the clock says, as it
// may have been stopped itself.
absl::Status StoreRendezvous::CountSilence(Clock::time_point* since,
                                           milliseconds* silence) {
  const Clock::time_point now = Clock::now();
  const bool was_told = *silence >= options_.patience;
  *silence +=
      std::min(std::chrono::ceil<milliseconds>(now - *since), options_.beat);
  *since = now;
  if (Ends()) return absl::CancelledError("this launcher ends");
  const std::string time = absl::FormatDuration(absl::FromChrono(*silence));
  if (*silence >= options_.lost_after) {
    return absl::DeadlineExceededError(absl::StrCat("no answer for ", time));
  }
  if (was_told || *silence < options_.patience) return absl::OkStatus();
  Tell(absl::StrCat(
      NodeZero(), ", has not answered for ", time,
      "; tandem waits for it, for up to ",
      absl::FormatDuration(absl::FromChrono(options_.lost_after))));
  return absl::OkStatus();
}

// Writes what this node says; what node 0 says of the group. AlreadyExists,
// and nothing is written, where another launcher has taken this one's place;
// Aborted where the store is another one.
absl::StatusOr<std::string> StoreRendezvous::Exchange(const NodeState& state) {
  const std::string text = state.Encode();
  return Ask<std::string>(
      [key = NodeKey(options_.node), text, before = std::exchange(told_, text)](
          c10d::Store& store) -> absl::StatusOr<std::string> {
        // The first takes the place. In one step, or the earlier of two
        // launchers would look, and write after the later has come.
        if (before.empty()) {
          store.set(key, text);
          return TextAt(store, kGroupKey);
        }
        const std::string now = store.compareSet(key, before, text);
        if (now == text) return TextAt(store, kGroupKey);
        // So a store answers that has nothing there.
        if (now == before) return absl::AbortedError("it was started anew");
        return absl::AlreadyExistsError("another launcher of this node");
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
        NodeZero(), ", is not heard of (", group.status().message(), ")"));
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
  using States = std::map<int, NodeState>;
  TANDEM_ASSIGN_OR_RETURN(
      const States states,
      Ask<States>([nnodes = options_.nnodes](c10d::Store& store) {
        return ReadStates(store, nnodes);
      }));
  const NodeGroup& group =
      end ? coordinator_.End(*end) : coordinator_.Decide(states, Clock::now());
  // This node reads it with its next beat: no sooner than the others.
  return Ask<bool>([text = group.Encode()](c10d::Store& store) {
           store.set(kGroupKey, text);
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
