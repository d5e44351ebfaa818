// Fully sharded stage: its parameters are gathered ahead of their use, forward
// and backward, and freed behind it; each rank gets the averages of its share
// of the gradients (torch.distributed.fsdp.fully_shard; ZeRO stages 2 and 3,
// Rajbhandari et al., arXiv:1910.02054).

#ifndef TANDEM_PARALLEL_FULLY_SHARDED_FULLY_SHARDED_H_
#define TANDEM_PARALLEL_FULLY_SHARDED_FULLY_SHARDED_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/layer_flow.h"
#include "parallel/fully_sharded/layer_units.h"
#include "parallel/fully_sharded/shard_unit.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/pipeline/stage/layer_parameters.h"
#include "parallel/pipeline/training_step.h"

namespace tandem {

struct FullyShardedOptions {
  bool shards_values = true;  // ZeRO 3; else gradients alone: ZeRO 2
  // Else they are another's affair, who averages all of them on all ranks.
  bool shards_gradients = true;
  // Each microbatch's gradients are averaged by themselves, and the averages
  // added: no rank has more than a unit's or two in full. Else those of all
  // microbatches gather first (set_requires_gradient_sync).
  bool reduces_each = true;
  // Gradients come from a WeightGradientSink, perhaps several times in one
  // action: they are averaged when the action is over.
  bool defers = false;
  // What layers compute in: weights that are read as copies of that dtype alone
  // are gathered as such (core/model/low_precision_reads.h).
  std::optional<at::ScalarType> param_dtype = {};
  // A parameter without a gradient on any rank has none; else it is an error.
  bool find_unused_parameters = false;
};

// Unless a schedule's actions gather and free all of them (Unshard, Free),
// units are gathered in the order of the layers, forward, and in its reverse
// backward, one ahead of that which computes; averages start in that reverse
// order, too. So all ranks issue their collectives alike, in whatever order
// autograd comes to gradients. Reshard after forward is fully_shard's: all but
// the last unit are freed, and gathered again.
//
// For the stage's thread, and that of its backward.
class FullySharded : public StageGradients, public LayerParameters {
 public:
  // `buffers` hold the trained parameters of the layers, no two units' in one,
  // and have been sharded as the options say (ShardBuffer); they and the groups
  // must outlive this.
  static std::unique_ptr<FullySharded> Create(
      LayerUnits units, const FlatBufferList& buffers,
      const ShardGroups& groups, const FullyShardedOptions& options);
  ~FullySharded() override;

  // Whether the next step gathers all parameters, once, and averages all
  // gradients at its end: where a replica has fewer microbatches than others,
  // it has no part in what these gather within one. The same on all ranks.
  void set_holds_all(bool on) { holds_all_ = on; }

  // Before a forward pass without backward: of so many microbatches on this
  // rank, 0 where it has no samples this time, or kNoMore where it has none any
  // more. Where ranks that gather together have different numbers, all
  // parameters are gathered now, until set_holds_all(false) and Reshard.
  // Whether any of these ranks may have more. Requires that parameters are
  // shared. Collective.
  static constexpr int kNoMore = -1;
  absl::StatusOr<bool> BeginInference(int microbatches);

  void BeforeLayer(size_t layer) override;
  void AfterLayer(size_t layer, const LayerFlow& flow) override;
  absl::Status BeginStep() override;
  absl::Status Unshard() override;
  absl::Status Free() override;

  absl::Status Prepare() override;
  absl::Status Before(const Action& action, bool last) override;
  absl::Status After(const Action& action, bool last) override;
  // Units are freed, too: the optimizers step what each rank keeps.
  absl::Status Finish() override;

  // All values, one unit after the other: copies in the host's memory, by
  // parameter, where they are `wanted`; else nothing. Collective.
  using ParameterCopies = std::map<const at::TensorImpl*, at::Tensor>;
  absl::StatusOr<ParameterCopies> CopyParameters(bool wanted);
  // Frees what was gathered.
  absl::Status Reshard();
  // Memory for all values, with anything in it, for who writes all of them
  // anew; and keeps this rank's share of what was written. Reshard in its place
  // keeps what there was. Not collective.
  absl::Status BeginReplacing();
  absl::Status EndReplacing();

 private:
  struct Unit;

  FullySharded(LayerUnits units, const ShardGroups& groups,
               const FullyShardedOptions& options);

  void OnGradient(Unit& unit, const FlatSlot& slot);
  absl::Status EnterBackward(size_t unit);
  absl::Status StartReady();
  absl::Status Start(Unit& unit);
  absl::Status FinishStarted();
  absl::Status EndPass();
  absl::Status SettleUse();
  absl::Status StartAll();
  absl::Status HoldAll();

  const LayerUnits layers_;
  const ShardGroups groups_;
  const FullyShardedOptions options_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<size_t> backward_order_;  // of units
  // In a pass of backward: how many of that order are entered, and started.
  size_t entered_ = 0, started_ = 0;
  bool reduces_ = false;                        // in this pass
  bool holds_all_ = false, has_acted_ = false;  // in this step
  bool stays_ = false;                          // between Unshard and Free
  std::optional<size_t> ahead_;                 // gathered for the next layer
  Unit* reducing_ = nullptr;                    // the last one started
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_FULLY_SHARDED_FULLY_SHARDED_H_
