// A barrier that says who did not come to it.

#include <chrono>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/some_of.h"
#include "core/shm/collectives.h"
#include "core/shm/memory/operation_names.h"

namespace tandem {
namespace {

class MonitoredBarrier : public ShmCollective {
 public:
  explicit MonitoredBarrier(std::chrono::milliseconds timeout)
      : timeout_(timeout) {}

  void Begin(ShmRounds& rounds) override {
    ShmNote note;
    note.operation = static_cast<uint32_t>(ShmOp::kMonitoredBarrier);
    rounds.Arrive(note);
  }

  absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) override {
    absl::Status status = rounds.Await(deadline);
    const std::vector<int> missing = rounds.Missing();
    if (!absl::IsDeadlineExceeded(status) || missing.empty()) return status;
    return absl::DeadlineExceededError(
        absl::StrCat(missing.size() == 1 ? "Rank " : "Ranks ", SomeOf(missing),
                     " failed to pass monitoredBarrier in ", timeout_.count(),
                     " ms: ", status.message()));
  }

  bool begins_cheaply() const override { return true; }
  bool is_long() const override { return false; }

 private:
  const std::chrono::milliseconds timeout_;
};

}  // namespace

ShmCollectivePtr MakeMonitoredBarrier(std::chrono::milliseconds timeout) {
  return std::make_unique<MonitoredBarrier>(timeout);
}

}  // namespace tandem
