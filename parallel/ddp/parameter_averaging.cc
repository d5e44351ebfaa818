#include "parallel/ddp/parameter_averaging.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/pending_collective.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

absl::Status AverageParameters(const FlatBufferList& buffers,
                               Communicator& group) {
  std::vector<PendingCollective> pending;
  for (const FlatBuffer* buffer : buffers) {
    TANDEM_ASSIGN_OR_RETURN(PendingCollective started,
                            StartAllReduceMean(buffer->values(), group));
    pending.push_back(std::move(started));
  }
  absl::Status first;
  for (PendingCollective& each : pending) first.Update(each.Wait());
  for (const FlatBuffer* buffer : buffers) buffer->CountWrite();
  return first;
}

absl::StatusOr<PeriodicParameterAverager> PeriodicParameterAverager::Create(
    const ParameterAveragingOptions& options) {
  if (options.period < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter averaging: period must be at least 1 step, got ",
        options.period));
  }
  if (options.warmup_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter averaging: warmup_steps must not be negative, got ",
        options.warmup_steps));
  }
  if (!options.outer.has_value()) return PeriodicParameterAverager(options);
  const auto [rate, momentum] = *options.outer;
  if (!(rate > 0) || !std::isfinite(rate) || !(momentum >= 0 && momentum < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter averaging: an outer optimizer needs a learning rate greater "
        "than 0 and a momentum from 0 to less than 1, got ",
        rate, " and ", momentum));
  }
  return PeriodicParameterAverager(options);
}

bool PeriodicParameterAverager::averages_now() const {
  const int64_t apart = step_ - options_.warmup_steps;
  const int64_t due = options_.outer.has_value() ? apart + 1 : apart;
  return !in_warmup() && due % options_.period == 0;
}

absl::Status PeriodicParameterAverager::AfterStep(const FlatBufferList& buffers,
                                                  Communicator& group) {
  const bool average = averages_now();
  ++step_;
  return average ? AverageParameters(buffers, group) : absl::OkStatus();
}

}  // namespace tandem
