// Communicators of a pipeline's cuts: one for each direction in which messages
// of two ranks cross, where streams carry them.

#ifndef TANDEM_PARALLEL_PIPELINE_LANES_H_
#define TANDEM_PARALLEL_PIPELINE_LANES_H_

#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/pipeline/layout.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// On streams messages have no tags: those of one communicator stand in one
// line, both directions of them. A pipeline posts receives before it sends what
// they answer, so each direction of each cut is a line of its own, in which
// both sides follow the sender's order. (Megatron alternates between two groups
// for the same reason.)
class PipelineLanes {
 public:
  struct Lane {
    std::unique_ptr<Communicator> activations;
    std::unique_ptr<Communicator> gradients;
  };

  // For this rank's cuts to other ranks; none where the group's host carries
  // the messages. Collective over the two ranks of each cut; all make theirs in
  // the order of the stages.
  static absl::StatusOr<PipelineLanes> Create(const Schedule& schedule,
                                              const PipelineLayout& layout);

  // Behind that stage; null: there is none.
  const Lane* Find(int stage) const;

  // Communicator's, of all of them.
  absl::Status Synchronize() const;
  void Abort(const absl::Status& reason) const;

 private:
  std::map<int, Lane> lanes_;  // by the stage before the cut
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_LANES_H_
