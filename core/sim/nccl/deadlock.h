// Deadlock finder: a circle in who waits for whom, over simulated NCCL
// communicators of several ranks (a wait-for graph).

#ifndef TANDEM_CORE_SIM_NCCL_DEADLOCK_H_
#define TANDEM_CORE_SIM_NCCL_DEADLOCK_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {
namespace sim {

// Wait-for reports of simulated NCCL communicators: what each of them is at,
// and for whom it waits.

// One communicator of one rank. Ranks have their numbers in the job.
struct CommunicatorWait {
  enum class State {
    kIdle,    // nothing is queued
    kInputs,  // its first operation waits for what its device computes
    kPeers,   // its first operation waits for other ranks
    kMoves,   // all have come
  };

  std::string communicator;  // the same on all of its ranks
  State state = State::kIdle;
  std::string operation;   // "receive of 16 bytes from rank 1"
  int64_t number = 0;      // how many operations were before it
  std::vector<int> peers;  // kPeers: who has not come
  std::string differs;     // what a rank that has come does instead
  double seconds = 0;      // in this state
};

// All communicators of a rank.
struct RankWaits {
  int rank = 0;
  int waiting_threads = 0;  // of the host: they wait for the rank's devices
  std::vector<CommunicatorWait> communicators;

  std::string Encode() const;
};

// The rank's, by Encode; empty for a text that is none.
RankWaits DecodeRankWaits(const std::string& text);

struct Deadlock {
  // Nothing can end it: all of the circle stand in line before each other, or
  // ranks do different things in one communicator. Else a rank of the circle
  // has not started what another one waits for, while its host waits for a
  // device, which another of its threads may yet end.
  bool is_certain = false;
  // "rank 0 waits in "pipe" for rank 1 (operation 1: receive of 16 bytes from
  // rank 1); rank 1 waits ..."
  std::string text;
};

// `ranks`: what each says, by rank; those that say nothing may be missing.
// Waits shorter than `patience` seconds count as none. A certain circle goes
// before others.
std::optional<Deadlock> FindDeadlock(const std::map<int, RankWaits>& ranks,
                                     double patience);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_DEADLOCK_H_
