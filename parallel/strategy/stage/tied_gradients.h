// Tied weights across stages, kept alike: each copy gets the sum of all copies'
// gradients (Megatron's embedding group).

#ifndef TANDEM_PARALLEL_STRATEGY_STAGE_TIED_GRADIENTS_H_
#define TANDEM_PARALLEL_STRATEGY_STAGE_TIED_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/pipeline/channels.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// Which order the copies' gradients are added in.
enum class TiedOrder {
  // From the last copy to the first within a rank, then over ranks by an
  // all-reduce: one tensor travels, however many copies there are.
  kByRank,
  // From the last copy of the model to the first, as in the uncut model,
  // wherever it is cut: every rank gets every copy's gradient, and has memory
  // for all of them in the meantime.
  kByCopy,
};

// Not thread-safe.
class TiedGradients {
 public:
  // `buffers` hold the copies that are on this rank; they and the layout's
  // group must outlive this. Collective: ranks that share a group of tied
  // weights get a communicator of their own.
  static absl::StatusOr<std::unique_ptr<TiedGradients>> Create(
      const std::vector<TiedGroup>& groups, const Schedule& schedule,
      const PipelineLayout& layout, const FlatBufferList& buffers,
      TiedOrder order = TiedOrder::kByRank);

  // Before the first step: every copy takes the value of the group's first
  // member. InvalidArgument for copies of different shapes. Collective.
  absl::Status ShareValues();

  // After backward. A copy without a gradient adds none; where no copy on any
  // rank has one, none gets any. Collective.
  absl::Status Sum();

  // Nobody shall wait for this rank.
  void Abort(const absl::Status& reason);
  // Communicator's, of all groups.
  absl::Status Synchronize() const;

  // Are there none on this rank?
  bool empty() const { return groups_.empty(); }

 private:
  struct Copy {
    FlatBuffer* buffer;
    size_t id;  // FlatSlot's
  };
  // Where a copy's gradient is after an exchange: the row of a rank's tensor.
  struct Place {
    size_t rank;
    int64_t row;
  };
  struct Group {
    std::string name;
    std::vector<Copy> copies;       // here; the last one first
    Communicator* ranks = nullptr;  // null: all copies are here
    std::vector<Place> places;      // of all copies; the last one first
    int64_t rows = 0;               // of a rank, at most
  };
  // Gradients in the order of their sum; undefined: there is none.
  using Terms = std::vector<at::Tensor>;

  absl::StatusOr<Communicator*> CommunicatorFor(const std::vector<int>& ranks,
                                                const PipelineLayout& layout,
                                                const Group& group);
  static Terms OwnTerms(const Group& group);
  static absl::StatusOr<Terms> Gather(const Group& group, const Terms& own);
  static absl::StatusOr<at::Tensor> AllReduce(const Group& group,
                                              const at::Tensor& own);
  absl::Status Sum(const Group& group) const;
  absl::Status ShareValue(const Group& group) const;

  TiedOrder order_ = TiedOrder::kByRank;
  std::vector<Group> groups_;
  // By ranks and, where streams serve a device, the group, whose ranks may have
  // it on different ones.
  std::map<std::pair<std::vector<int>, std::string>,
           std::unique_ptr<Communicator>>
      communicators_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STAGE_TIED_GRADIENTS_H_
