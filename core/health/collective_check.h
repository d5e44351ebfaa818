// Collective check: whether all ranks mean the same collective. This is
// PyTorch's ProcessGroupWrapper, which TORCH_DISTRIBUTED_DEBUG=DETAIL turns on,
// with the purpose in its messages.

#ifndef TANDEM_CORE_HEALTH_COLLECTIVE_CHECK_H_
#define TANDEM_CORE_HEALTH_COLLECTIVE_CHECK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/call_within.h"
#include "core/health/group_member.h"

namespace tandem {

// What TORCH_DISTRIBUTED_DEBUG asks for: true for DETAIL, false for OFF, INFO
// and nothing. Upper or lower case. InvalidArgument names any other text.
absl::StatusOr<bool> AsksForCollectiveChecks(absl::string_view level);

// Compares, before each collective of one group of ranks, what every rank is
// about to start. Over the store, so it finds ranks that start different things
// or nothing, at the price of some round trips a collective and of no overlap:
// a rank goes on when all have come. Not thread-safe.
class CollectiveCheck {
 public:
  // Not OK, with the reason, when a rank will not come that has noted nothing
  // on the store, as far as the caller knows. It is asked while ranks are
  // waited for, on a thread that may outlive the check, and so owns what it
  // uses.
  using Presence = std::function<absl::Status()>;

  // `presence` may be null.
  CollectiveCheck(GroupMember member, std::chrono::milliseconds timeout,
                  Presence presence = nullptr);
  ~CollectiveCheck();
  CollectiveCheck(const CollectiveCheck&) = delete;
  CollectiveCheck& operator=(const CollectiveCheck&) = delete;

  // This rank starts no more: whoever waits for it in vain is told at once.
  // Takes 2 s at most. So does exit() for those that have not been destroyed.
  void Leave();

  // To be called by every rank for each collective. `what` must agree, such as
  // "all-reduce of Float [5] on cpu"; `purpose` is only shown. Returns
  //   InvalidArgument on every rank when ranks disagree: names the first that
  //     differs from the group's first, and what the two are about to start;
  //   DeadlineExceeded after `timeout`: names the ranks that started nothing,
  //     and what each started last;
  //   Unavailable soon after another rank has noted on the store that it failed
  //     or gives up (group_failures.h), has left before it started this, or is
  //     not present, or when the store itself is gone.
  absl::Status Compare(const std::string& what, const std::string& purpose);

 private:
  struct Started {
    std::string what;
    std::string purpose;
    std::string ToString() const;
  };

  using Round = std::vector<std::optional<Started>>;  // by rank

  static absl::StatusOr<Round> Exchange(const GroupMember& member,
                                        int64_t sequence, const Started& mine,
                                        std::chrono::milliseconds timeout,
                                        const Presence& presence);
  absl::Status NameMissing(const Round& round) const;
  absl::Status Disagree(const Round& round, int other) const;

  const GroupMember member_;
  std::chrono::milliseconds timeout_;
  const Presence presence_;
  CallThread thread_;  // for the store, whose server may be frozen
  int64_t sequence_ = 0;
  Round last_;  // the one before; empty at first
};

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_COLLECTIVE_CHECK_H_
