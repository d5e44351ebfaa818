// Keeps copies of tied weights alike: each gets the sum of all copies'
// gradients (Megatron's embedding group).

#ifndef TANDEM_PARALLEL_TIED_GRADIENTS_H_
#define TANDEM_PARALLEL_TIED_GRADIENTS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/communicator.h"
#include "parallel/flat_buffer_list.h"
#include "parallel/pipeline_links.h"
#include "parallel/pipeline_model.h"
#include "parallel/schedule.h"

namespace tandem {

// Not thread-safe.
class TiedGradients {
 public:
  // `buffers` hold the copies that are on this rank; they and the layout's
  // group must outlive this. Collective: ranks that share a group of tied
  // weights get a communicator of their own.
  static absl::StatusOr<std::unique_ptr<TiedGradients>> Create(
      const std::vector<TiedGroup>& groups, const Schedule& schedule,
      const PipelineLayout& layout, const FlatBufferList& buffers);

  // After backward: sums, from the last stage to the first, within this rank
  // and then over ranks. A copy without a gradient adds none; where no copy on
  // any of a rank's stages has one, nothing changes within a rank, and zeros
  // take part across ranks. Collective.
  absl::Status Sum();

  // Nobody shall wait for this rank.
  void Abort(const absl::Status& reason);

  // Are there none on this rank?
  bool empty() const { return groups_.empty(); }

 private:
  struct Copy {
    FlatBuffer* buffer;
    size_t id;  // FlatSlot's
  };
  struct Group {
    std::string name;
    std::vector<Copy> copies;       // here; the last stage's first
    Communicator* ranks = nullptr;  // null: all copies are here
  };

  absl::StatusOr<Communicator*> CommunicatorFor(const TiedGroup& group,
                                                const Schedule& schedule,
                                                const PipelineLayout& layout);
  static absl::Status Sum(const Group& group);

  std::vector<Group> groups_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> communicators_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_TIED_GRADIENTS_H_
