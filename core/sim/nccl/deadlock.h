// Deadlock finder: a circle in who waits for whom, over simulated NCCL
// communicators of several ranks (a wait-for graph).

#ifndef TANDEM_CORE_SIM_NCCL_DEADLOCK_H_
#define TANDEM_CORE_SIM_NCCL_DEADLOCK_H_

#include <map>
#include <optional>
#include <string>

#include "core/sim/nccl/waits.h"

namespace tandem {
namespace sim {

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
// Waits shorter than `patience` seconds count as none. Of several circles one
// that is certain.
std::optional<Deadlock> FindDeadlock(const std::map<int, RankWaits>& ranks,
                                     double patience);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_DEADLOCK_H_
