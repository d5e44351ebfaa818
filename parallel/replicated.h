// Replicated strategies, which live in the room parallel/strategy.

#ifndef TANDEM_PARALLEL_REPLICATED_H_
#define TANDEM_PARALLEL_REPLICATED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "parallel/strategy/replicated.h"  // IWYU pragma: export

namespace tandem {

// MakeReplicated, under an earlier name.
struct Replicated {
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(
      const LayerList& layers, const LossFunction& loss,
      const ReplicatedOptions& options, Communicator& data) {
    return MakeReplicated(layers, loss, options, data);
  }
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPLICATED_H_
