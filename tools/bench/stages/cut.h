// Cuts by a profile of the layers, as the trainer's --balance=profile makes
// them.

#ifndef TANDEM_TOOLS_BENCH_STAGES_CUT_H_
#define TANDEM_TOOLS_BENCH_STAGES_CUT_H_

#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/model_profile.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// The profile of the first of the batch's microbatches, which is as large as
// any, with backward in two parts where the schedule has it so.
absl::StatusOr<ModelProfile> ProfileMicrobatch(const LayerList& layers,
                                               const Batch& batch,
                                               const Schedule& schedule);

// Between devices of this host.
absl::StatusOr<SendingCost> MeasureSending();

absl::StatusOr<Cuts> CutByProfile(const LayerSpecs& specs,
                                  const ModelProfile& profile,
                                  const Schedule& schedule,
                                  const SendingCost& sending);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_STAGES_CUT_H_
