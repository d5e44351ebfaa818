// Deadlock watch: looks for circles among the simulated NCCL communicators of
// this process's ranks and of the job's others.

#ifndef TANDEM_CORE_SIM_NCCL_DEADLOCK_WATCH_H_
#define TANDEM_CORE_SIM_NCCL_DEADLOCK_WATCH_H_

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/sim/nccl/communicator.h"
#include "core/sim/nccl/deadlock.h"
#include "core/store/store.h"

namespace tandem {
namespace sim {

// A thread that costs nothing while communicators move. When one has waited for
// a second its rank notes on the job's store what all of its communicators are
// at, reads what those say for whom it waits, and so on. When a deadlock is
// certain, twice in a row the same, all communicators of all ranks that wait
// are aborted, with the circle as their reason; otherwise a warning is logged,
// once.
//
// Thread-safe.
class DeadlockWatch {
 public:
  static DeadlockWatch& OfProcess();

  // `job`: where ranks of all groups find each other's notes. The communicator
  // must be taken away before it goes.
  void Add(NcclCommunicator* communicator, StorePtr job);
  void Remove(NcclCommunicator* communicator);

 private:
  // One rank of the job.
  struct Rank {
    StorePtr job;
    std::vector<NcclCommunicator*> communicators;
    bool has_noted = false;
    std::string found;   // in the last round
    std::string warned;  // what a warning was logged of
  };

  DeadlockWatch();
  void Loop();
  // A round of one rank, which says `mine`.
  void Look(int rank, const RankWaits& mine, const StorePtr& job);
  bool IsFoundAgain(int rank, const std::string& found);
  void Abort(int rank, const std::string& found);
  void Warn(int rank, const std::string& found);
  std::map<int, RankWaits> Gather(const RankWaits& mine, c10d::Store& job);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Rank> ranks_;
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_DEADLOCK_WATCH_H_
