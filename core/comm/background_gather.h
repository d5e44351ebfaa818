// Background gather: an all-gather of texts by a thread beside the one that
// issues a group's collectives. It goes by way of the group's store.

#ifndef TANDEM_CORE_COMM_BACKGROUND_GATHER_H_
#define TANDEM_CORE_COMM_BACKGROUND_GATHER_H_

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"

namespace tandem {

// A round of such gathers. All ranks make rounds in the same order, one at a
// time, and the same number of gathers in each. Gather and the rest may be
// called by different threads.
class BackgroundGather {
 public:
  // `what` tells the group's rounds of different kinds apart, and names them in
  // messages: "checkpoint". `group` must outlive it.
  BackgroundGather(Communicator& group, std::string what,
                   std::chrono::milliseconds timeout)
      : group_(&group), what_(std::move(what)), timeout_(timeout) {}

  // The next round begins. Removes from the store what the one before the last
  // has left there: every rank has done with it.
  void BeginRound();

  // Every rank's text, by rank. DeadlineExceeded, naming ranks that have not
  // come within the timeout; Aborted, within a second, when a rank of the job
  // has failed, with its reason; Cancelled after Stop.
  absl::StatusOr<std::vector<std::string>> Gather(const std::string& mine);

  // Ends a gather that runs now or comes later. May be called from any thread.
  void Stop() { stopped_ = true; }

 private:
  std::string GatherKey(int round, int gather) const;
  bool IsOver();

  Communicator* const group_;
  const std::string what_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> stopped_{false};
  std::string failure_;  // as a rank has reported it
  int round_ = -1;
  int gathers_ = 0;                // of this round, so far
  std::vector<int> gathers_made_;  // of the rounds before
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_BACKGROUND_GATHER_H_
