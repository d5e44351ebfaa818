// Partition table, for a person to read.

#ifndef TANDEM_PARALLEL_PARTITION_TABLE_H_
#define TANDEM_PARALLEL_PARTITION_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// Two tables: each layer with its type, parameters, stage and, where the model
// has a profile, times and memory for one microbatch; and each stage. With a
// profile also the slowest stage, and the step that `schedule` is predicted to
// take. Requires cuts that fit the layers and the schedule's stages.
absl::StatusOr<std::string> PartitionTable(const ModelOutline& model,
                                           const Cuts& cuts,
                                           const Schedule& schedule,
                                           const PipelineDevices& devices = {});

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_TABLE_H_
