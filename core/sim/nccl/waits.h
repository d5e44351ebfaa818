// Wait-for reports of simulated NCCL communicators: what each of them is at,
// and for whom it waits.

#ifndef TANDEM_CORE_SIM_NCCL_WAITS_H_
#define TANDEM_CORE_SIM_NCCL_WAITS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {
namespace sim {

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

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_WAITS_H_
