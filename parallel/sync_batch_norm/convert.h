// Conversion of a model's BatchNorm layers to SyncBatchNorm, in one call.

#ifndef TANDEM_PARALLEL_SYNC_BATCH_NORM_CONVERT_H_
#define TANDEM_PARALLEL_SYNC_BATCH_NORM_CONVERT_H_

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "core/model/shared_statistics.h"

namespace tandem {

// torch.nn.SyncBatchNorm.convert_sync_batchnorm: from now on every BatchNorm of
// the module normalises, in training, by the statistics of all ranks of
// `group`, which must outlive it. Returns how many there are. Not collective;
// alike on all ranks.
//
// What derives from SharesStatistics (SyncableBatchNorm*, SyncBatchNorm, the
// layers of models/) gets the group; a torch::nn::BatchNorm1d, 2d or 3d within
// a torch::nn::Sequential is replaced by a SyncBatchNorm with the same
// parameters, buffers and mode. One that a member holds by its type cannot be
// replaced: InvalidArgument names it, and nothing is changed.
absl::StatusOr<int> ConvertSyncBatchNorm(torch::nn::Module& module,
                                         Communicator& group);
// The same of all layers.
absl::StatusOr<int> ConvertSyncBatchNorm(const LayerList& layers,
                                         Communicator& group);

// The layers' modules that share statistics where they are given a group, in
// the order in which they were registered; replaces what ConvertSyncBatchNorm
// replaces.
absl::StatusOr<std::vector<SharesStatistics*>> MakeSyncable(
    const LayerList& layers);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SYNC_BATCH_NORM_CONVERT_H_
