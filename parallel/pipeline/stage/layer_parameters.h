// Parameters of a stage's layers that are not always there (FSDP): who is told
// when a layer computes.

#ifndef TANDEM_PARALLEL_PIPELINE_STAGE_LAYER_PARAMETERS_H_
#define TANDEM_PARALLEL_PIPELINE_STAGE_LAYER_PARAMETERS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "core/model/layer_flow.h"

namespace tandem {

// Called by the stage's thread, or by that of its backward; what returns
// nothing may throw c10::Error, as a layer does.
class LayerParameters {
 public:
  LayerParameters() = default;
  virtual ~LayerParameters() = default;
  LayerParameters(const LayerParameters&) = delete;
  LayerParameters& operator=(const LayerParameters&) = delete;

  // The stage's layer of that number computes next: its parameters are there
  // when this returns.
  virtual void BeforeLayer(size_t layer) = 0;
  // It has given this; in a pass with a graph, backward comes to it.
  virtual void AfterLayer(size_t layer, const LayerFlow& flow) = 0;

  // A training step begins, of which a replica may have no microbatches.
  virtual absl::Status BeginStep() = 0;

  // The schedule's actions (parallel/schedule/unshards.h): from the one to the
  // other all parameters are there, or on their way.
  virtual absl::Status Unshard() = 0;
  virtual absl::Status Free() = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STAGE_LAYER_PARAMETERS_H_
