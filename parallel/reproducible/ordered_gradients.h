// Ordered gradients: those of a stage, summed in an order that does not depend
// on how many replicas there are, nor on the schedule.

#ifndef TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_GRADIENTS_H_
#define TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/reproducible/ordered_exchange.h"

namespace tandem {

// A microbatch's gradient comes at once, or in two parts, of which the first
// may be missing. Whole ones are given in the order of their first parts: one
// that comes at once waits for those before it. Not thread-safe.
class GradientHalves {
 public:
  struct Whole {
    int microbatch = 0;
    at::Tensor gradient;
  };

  // `part` is added up where it lies, and is not used after the Next() that
  // gives nothing: what is kept longer is copied. Undefined: there is no first
  // part. `awaits`: another one will come. Requires that second parts come in
  // the order of the first ones.
  void Add(int microbatch, const at::Tensor& part, bool awaits);

  // The next microbatch's, once.
  std::optional<Whole> Next();

  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    Whole sum;
    bool is_whole = false;
  };

  std::deque<Entry> entries_;
};

struct GradientOrder {
  // Groups of the whole batch; replica r has the r-th contiguous part of them.
  int groups = 1;
  // One replica's: a multiple of its groups.
  int microbatches = 1;
  // Microbatches' gradients come from the last to the first; then each is a
  // group by itself.
  bool descends = false;
  // Parameters that no microbatch of a replica uses are an error otherwise,
  // where there are several replicas.
  bool find_unused_parameters = false;
  // Some microbatches' gradients come in two parts (kBackwardInput, then
  // kBackwardWeight).
  bool splits = false;
};

// Microbatches form groups: contiguous, of equal size. A group's gradients are
// summed in the order of its microbatches, the groups' sums in a binary tree
// (SummationTree). So the result has the same bits for every number of replicas
// that divides the groups. Each microbatch's loss must weigh its share of the
// whole batch; what is summed here is not divided.
//
// Replicas exchange sums of groups (ordered_exchange.h), two of them by an
// all-reduce where their groups are a node of the tree each.
//
// Where a microbatch's gradients come in two parts, a parameter may get some of
// its gradient in both: their sum is the microbatch's, whole before it is added
// to its group, so that the order of sums is that of a backward in one part.
// Such a parameter keeps its first part until the second comes. (Of three terms
// or more within one microbatch, as of a weight that is used as often, the two
// parts are added up by themselves first.)
//
// Where a replica has G groups, log2(G) + 1 further buffers as large as the
// gradients are kept at most, one more for each node that it sends, and one
// where gradients come in two parts and groups are of several microbatches.
//
// Requires microbatches' gradients to come in order, either way. A step may
// have fewer microbatches than there are, the first of the whole batch: those
// that are missing add zeros, and a replica may have none.
//
// Errors: InvalidArgument for parameters without a gradient; those of
// Communicator.
class OrderedGradients : public StageGradients {
 public:
  // How many are kept at most, of so many replicas.
  static int FurtherBuffers(const GradientOrder& order, int replicas);

  // `replicas` null: there is one. It and `buffers` must outlive this.
  OrderedGradients(FlatBufferList buffers, const GradientOrder& order,
                   Communicator* replicas);

  absl::Status Prepare() override;
  absl::Status Before(const Action& action, bool last) override;
  void AwaitWeights(const std::vector<at::Tensor>& weights) override;
  absl::Status After(const Action& action, bool last) override;
  absl::Status Finish() override;

 private:
  using Node = SummationTree::Node;
  static constexpr int kNone = -1;

  // A parameter, while gradients gather.
  struct Gathering {
    FlatBuffer* buffer;
    size_t id;                  // FlatSlot's
    bool touched = false;       // by the action under way
    bool awaits = false;        // a second part of its microbatch
    int group = kNone;          // whose sum is under way, of all
    int halves = 0;             // of a pair: bits of those that gave some
    int groups_done = 0;        // as many were added to the tree
    std::vector<int> waiting;   // by level: the index of the node that waits
    GradientHalves parts = {};  // where there are two
  };
  // Further memory of a buffer's layout.
  struct Memory {
    at::Tensor group;                 // where there are two parts
    std::vector<at::Tensor> waiting;  // by level
    std::vector<at::Tensor> sums;     // by node of cover()
  };

  // Nodes of this replica's groups.
  const std::vector<Node>& cover() const { return exchange_->cover(); }
  // Two replicas, each one term of the tree's root?
  bool is_pair() const {
    return replicas_ != nullptr && replicas_->size() == 2 &&
           cover().size() == 1;
  }
  int GroupIndex(int microbatch) const;
  const std::string& ParameterName(const Gathering& each) const;
  at::Tensor Place(const Gathering& each, const at::Tensor& flat) const;
  at::Tensor MemoryFor(const Gathering& each, at::Tensor* memory);
  at::Tensor PlaceOfSum(const Gathering& each, size_t number);
  at::Tensor PlaceOfGroup(const Gathering& each);
  void SetHasGradient(const Gathering& each, bool on);
  void AddPart(const Action& action, Gathering* each);
  void AddWhole(int microbatch, const at::Tensor& sum, Gathering* each);
  void AddGroup(Gathering* each);
  void AddZerosUpTo(int group, Gathering* each);
  void AddToTree(int group, const at::Tensor& sum, Gathering* each);
  absl::Status SettleUse();
  absl::Status Exchange(FlatBuffer& buffer, int number);

  FlatBufferList buffers_;
  GradientOrder order_;
  Communicator* replicas_;
  int first_group_ = 0;
  int own_groups_ = 1;
  // Two groups of a microbatch each, which have one parent, are taken for one
  // group: their sum has the same bits, and needs no further memory. Not where
  // gradients come in two parts.
  bool pairs_ = false;
  bool has_acted_ = false;  // in this step
  SummationTree tree_;
  std::optional<OrderedExchange> exchange_;
  std::vector<Gathering> gathering_;
  std::map<std::pair<const FlatBuffer*, size_t>, size_t> number_of_;
  std::map<const void*, size_t> number_of_weight_;  // by its TensorImpl
  std::map<const FlatBuffer*, Memory> memory_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_GRADIENTS_H_
