// What of a training job cannot be captured in a graph: pure logic.

#ifndef TANDEM_PARALLEL_STRATEGY_CAPTURE_CHECKS_H_
#define TANDEM_PARALLEL_STRATEGY_CAPTURE_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "parallel/strategy/mesh_strategy_options.h"

namespace tandem {

// What the options do not say.
struct CaptureFacts {
  // Of the device: core/graph/make_device_graph.h.
  absl::Status has_graphs;
  int replicas = 1;
  // Does a device's stream carry what replicas exchange (NCCL)?
  bool exchanges_on_streams = true;
  bool clips_on_device = false;
  bool loss_has_weight = false;
  bool shares_optimizer = false;
  bool records_statistics = false;
};

// Why a step of a whole model is not captured, for a person; empty: it is.
std::string WhyNotCaptured(const MeshStrategyOptions& options,
                           const CaptureFacts& facts);

// The same of the middle microbatches of a model that is cut into stages.
std::string WhyMicrobatchesAreNotCaptured(const MeshStrategyOptions& options,
                                          const CaptureFacts& facts);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_CAPTURE_CHECKS_H_
