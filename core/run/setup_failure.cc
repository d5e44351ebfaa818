#include "core/run/setup_failure.h"

#include <chrono>

#include "core/health/job_notes.h"

namespace tandem {
namespace {

// For a store that answers.
constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(2);

}  // namespace

bool IsOwnFault(const absl::Status& status) {
  return !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) &&
         !absl::IsAborted(status);
}

void TellOfFailedSetUp(const Launch& launch, const absl::Status& status) {
  const bool is_stopped_by_launcher =
      launch.nnodes == 1 && launch.rendezvous.served_by_launcher;
  if (is_stopped_by_launcher || !IsOwnFault(status)) return;
  TellJobOfFailure(launch, FailureNote::Kind::kGaveUp,
                   std::string(status.message()), kPatience)
      .IgnoreError();
}

void TellOfDeath(const Launch& rank, const std::string& how) {
  // A rank that cannot be told finds out by its connections, or by timeout.
  TellJobOfFailure(rank, FailureNote::Kind::kDied, how, kPatience)
      .IgnoreError();
}

}  // namespace tandem
