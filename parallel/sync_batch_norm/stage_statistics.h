// SyncBatchNorm of a pipeline's stage: the layers' shared statistics, and the
// part in them of a replica that has fewer microbatches than others.

#ifndef TANDEM_PARALLEL_SYNC_BATCH_NORM_STAGE_STATISTICS_H_
#define TANDEM_PARALLEL_SYNC_BATCH_NORM_STAGE_STATISTICS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "core/model/microbatch_scope.h"
#include "core/model/shared_statistics.h"

namespace tandem {

// Microbatch m of a replica is normalised together with microbatch m of the
// others. In a step they run the same actions in the schedule's order; for one
// whose microbatch a replica lacks it calls NoForward or NoBackward, which take
// part with a count of 0, so that running statistics stay alike.
//
// For that the layers must run in the order in which they were registered, once
// a microbatch, and each must have a gradient to give: LibTorch's error, of the
// layer's forward, names what does not. For the stage's thread alone.
class StageStatistics {
 public:
  // Converts the layers (convert.h); null where there is none to convert.
  // `group` is the stage's replicas' and used for nothing else; it must outlive
  // the layers. InvalidArgument as ConvertSyncBatchNorm.
  static absl::StatusOr<std::unique_ptr<StageStatistics>> Create(
      const LayerList& layers, Communicator& group);
  ~StageStatistics();

  int size() const;  // layers

  // A step begins.
  void Begin();
  absl::Status NoForward(const Microbatch& microbatch);
  absl::Status NoBackward(const Microbatch& microbatch);

 private:
  class Ordered;

  StageStatistics();

  std::shared_ptr<Ordered> shared_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SYNC_BATCH_NORM_STAGE_STATISTICS_H_
