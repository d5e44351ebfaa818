#include "core/sim/nccl/deadlock_watch.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"
#include "core/sim/nccl/deadlock.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

constexpr std::chrono::milliseconds kInterval(500);
constexpr double kPatience = 1;  // seconds

// The key at which the first rank to find a deadlock leaves it for all.
constexpr char kVerdict[] = "sim_nccl/deadlock";

std::string WaitsKey(int rank) { return absl::StrCat("sim_nccl/waits/", rank); }

// What moves, too: the others may have been aborted in the middle of it.
bool WaitsLong(const CommunicatorWait& wait) {
  return wait.seconds > kPatience &&
         wait.state != CommunicatorWait::State::kIdle;
}

// What somebody has written there; empty: nothing.
std::string Read(const std::string& key, c10d::Store& job) {
  if (!job.check({key})) return "";
  const std::vector<uint8_t> text = job.get(key);
  return std::string(text.begin(), text.end());
}

void Write(const std::string& key, const std::string& text, c10d::Store& job) {
  job.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

}  // namespace

DeadlockWatch& DeadlockWatch::OfProcess() {
  static auto* watch = new DeadlockWatch;
  return *watch;
}

DeadlockWatch::DeadlockWatch() {
  std::thread([this] { Loop(); }).detach();
}

void DeadlockWatch::Add(NcclCommunicator* communicator, StorePtr job) {
  const auto& options = communicator->options();
  std::lock_guard<std::mutex> lock(mutex_);
  Rank& rank = ranks_[communicator->NameOf(options.rank)];
  rank.job = std::move(job);
  rank.communicators.push_back(communicator);
  changed_.notify_all();
}

void DeadlockWatch::Remove(NcclCommunicator* communicator) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto rank = ranks_.begin(); rank != ranks_.end(); ++rank) {
    auto& all = rank->second.communicators;
    const auto found = std::find(all.begin(), all.end(), communicator);
    if (found == all.end()) continue;
    all.erase(found);
    if (all.empty()) ranks_.erase(rank);
    return;
  }
}

void DeadlockWatch::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !ranks_.empty(); });
    std::map<int, std::pair<RankWaits, StorePtr>> all;
    for (const auto& [name, rank] : ranks_) {
      RankWaits waits;
      waits.rank = name;
      for (const NcclCommunicator* each : rank.communicators) {
        waits.communicators.push_back(each->Wait());
        waits.waiting_threads +=
            HostThreadsWaiting(each->options().device.index());
      }
      all[name] = {std::move(waits), rank.job};
    }
    lock.unlock();
    for (const auto& [name, rank] : all) {
      // A store that is gone is somebody else's to tell.
      CatchTorch([&, name = name, &rank = rank] {
        Look(name, rank.first, rank.second);
      }).IgnoreError();
    }
    all.clear();
    std::this_thread::sleep_for(kInterval);
    lock.lock();
  }
}

void DeadlockWatch::Look(int rank, const RankWaits& mine, const StorePtr& job) {
  const bool waits = std::any_of(mine.communicators.begin(),
                                 mine.communicators.end(), WaitsLong);
  bool has_noted = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = ranks_.find(rank);
    if (found == ranks_.end()) return;
    has_noted = std::exchange(found->second.has_noted, waits);
    if (!waits) found->second.found.clear();
  }
  if (waits || has_noted)
    Write(WaitsKey(rank), waits ? mine.Encode() : "", *job);
  if (!waits) return;
  // A rank that ends first waits no longer, and no circle is left to be found.
  const std::string verdict = Read(kVerdict, *job);
  if (!verdict.empty()) return Abort(rank, verdict);
  const auto found = FindDeadlock(Gather(mine, *job), kPatience);
  if (!found.has_value() || !IsFoundAgain(rank, found->text)) return;
  if (found->is_certain) {
    Write(kVerdict, found->text, *job);
    Abort(rank, found->text);
  } else {
    Warn(rank, found->text);
  }
}

std::map<int, RankWaits> DeadlockWatch::Gather(const RankWaits& mine,
                                               c10d::Store& job) {
  std::map<int, RankWaits> all = {{mine.rank, mine}};
  std::vector<int> next = {mine.rank};
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    std::set<int> peers;
    for (const CommunicatorWait& each : all[rank].communicators) {
      peers.insert(each.peers.begin(), each.peers.end());
    }
    for (const int peer : peers) {
      if (all.count(peer) > 0) continue;
      all[peer] = DecodeRankWaits(Read(WaitsKey(peer), job));
      next.push_back(peer);
    }
  }
  return all;
}

bool DeadlockWatch::IsFoundAgain(int rank, const std::string& found) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = ranks_.find(rank);
  return entry != ranks_.end() &&
         std::exchange(entry->second.found, found) == found;
}

void DeadlockWatch::Abort(int rank, const std::string& found) {
  const std::string reason = absl::StrCat(
      "deadlock: ", found,
      "; members of a communicator must start the same operations in the same "
      "order");
  std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = ranks_.find(rank);
  if (entry == ranks_.end()) return;
  for (NcclCommunicator* each : entry->second.communicators)
    each->Abort(reason);
}

void DeadlockWatch::Warn(int rank, const std::string& found) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = ranks_.find(rank);
  if (entry == ranks_.end()) return;
  if (std::exchange(entry->second.warned, found) == found) return;
  LOG(WARNING) << "simulated NCCL: nothing moves, and this looks like a "
                  "deadlock: "
               << found;
}

}  // namespace sim
}  // namespace tandem
