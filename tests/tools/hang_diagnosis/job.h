// Flight dumps made by hand: what each rank of a job did. For tests.

#ifndef TANDEM_TESTS_TOOLS_HANG_DIAGNOSIS_JOB_H_
#define TANDEM_TESTS_TOOLS_HANG_DIAGNOSIS_JOB_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/flight/dump.h"

namespace tandem {

// Every entry comes one second after the one before it, whichever rank's.
class MadeJob {
 public:
  static constexpr int64_t kSecond = 1000000000;

  explicit MadeJob(int world_size) : world_size_(world_size) {}

  // Ranks that follow have it as a group of theirs.
  int AddGroup(const std::string& name, std::vector<int> ranks) {
    groups_.push_back({name, name + "/0", std::move(ranks), 0});
    return static_cast<int>(groups_.size()) - 1;
  }

  // The rank's next collective of the group; a sequence of sizes tells it from
  // others. Not awaited, not completed.
  FlightEntry& Start(int rank, int group, const std::string& operation,
                     std::vector<int64_t> sizes) {
    FlightEntry& entry = Add(rank, FlightKind::kCollective, group, operation);
    entry.sizes = std::move(sizes);
    entry.dtype = entry.sizes.empty() ? "" : "Float";
    entry.sequence =
        ++dumps_[rank].groups[static_cast<size_t>(group)].scheduled;
    return entry;
  }
  void Do(int rank, int group, const std::string& operation,
          std::vector<int64_t> sizes) {
    Complete(Start(rank, group, operation, std::move(sizes)));
  }
  FlightEntry& Await(int rank, int group, const std::string& operation,
                     std::vector<int64_t> sizes) {
    return Wait(Start(rank, group, operation, std::move(sizes)));
  }
  FlightEntry& Message(int rank, FlightKind kind, int group, int peer, int tag,
                       int64_t number) {
    FlightEntry& entry =
        Add(rank, kind, group, kind == FlightKind::kSend ? "send" : "receive");
    entry.peer = peer;
    entry.tag = tag;
    entry.sequence = number;
    entry.dtype = "Float";
    entry.sizes = {4};
    return entry;
  }
  FlightEntry& Act(int rank, int stage, int microbatch) {
    FlightEntry& entry = Add(rank, FlightKind::kAction, -1, "forward");
    entry.stage = stage;
    entry.microbatch = microbatch;
    entry.state = FlightState::kStarted;
    return entry;
  }
  static FlightEntry& Wait(FlightEntry& entry) {
    entry.state = FlightState::kStarted;
    entry.started_ns = entry.awaited_ns = entry.scheduled_ns;
    return entry;
  }
  static void Complete(FlightEntry& entry) {
    Wait(entry).state = FlightState::kCompleted;
    entry.completed_ns = entry.scheduled_ns + kSecond / 2;
  }

  // The rank is dumped now.
  void Dump(int rank, FlightTrigger trigger, const std::string& reason = "") {
    FlightDump& dump = Of(rank);
    dump.trigger = trigger;
    dump.reason = reason;
    dump.dumped_ns = now_ += kSecond;
  }

  // The dumps of the ranks that were dumped.
  std::vector<FlightDump> Dumps() const {
    std::vector<FlightDump> dumps;
    for (const auto& [rank, dump] : dumps_) {
      if (dump.dumped_ns > 0) dumps.push_back(dump);
    }
    return dumps;
  }

 private:
  FlightDump& Of(int rank) {
    const auto [at, is_new] = dumps_.emplace(rank, FlightDump());
    if (is_new) {
      at->second.rank = rank;
      at->second.world_size = world_size_;
      at->second.groups = groups_;
    }
    return at->second;
  }

  FlightEntry& Add(int rank, FlightKind kind, int group,
                   const std::string& operation) {
    FlightDump& dump = Of(rank);
    FlightEntry entry;
    entry.id = static_cast<int64_t>(dump.entries.size());
    entry.kind = kind;
    entry.group = group;
    entry.operation = operation;
    entry.scheduled_ns = now_ += kSecond;
    dump.entries.push_back(entry);
    return dump.entries.back();
  }

  const int world_size_;
  int64_t now_ = 0;
  std::vector<FlightGroupFacts> groups_;
  std::map<int, FlightDump> dumps_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_TOOLS_HANG_DIAGNOSIS_JOB_H_
