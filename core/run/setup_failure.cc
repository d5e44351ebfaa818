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

void ReportSetupFailure(const Launch& launch, const absl::Status& status) {
  const bool is_stopped_by_launcher =
      launch.nnodes == 1 && launch.rendezvous.served_by_launcher;
  if (is_stopped_by_launcher || !IsOwnFault(status)) return;
  ReportFailureToJob(launch, FailureNote::Kind::kGaveUp,
                     std::string(status.message()), kPatience)
      .IgnoreError();
}

void ReportDeath(const Launch& rank, const std::string& how) {
  // A rank that cannot be told finds out by its connections, or by timeout.
  ReportFailureToJob(rank, FailureNote::Kind::kDied, how, kPatience)
      .IgnoreError();
}

}  // namespace tandem
