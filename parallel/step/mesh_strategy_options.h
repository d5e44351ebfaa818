// Options of the mesh strategy: how a model is cut, scheduled, replicated and
// updated.

#ifndef TANDEM_PARALLEL_STEP_MESH_STRATEGY_OPTIONS_H_
#define TANDEM_PARALLEL_STEP_MESH_STRATEGY_OPTIONS_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/options.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/update_options.h"
#include "parallel/pipeline/options.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// What a replica's gradient, the mean over its own samples, weighs in a step of
// uneven batches.
enum class UnevenDivision {
  kSamples,          // as many samples as it has: the mean over all of the step
  kInitialReplicas,  // one part of all replicas, those without samples included
  kPresentReplicas,  // one part of those that have samples
};

// How parameters are updated is said by the base; see MeshStrategy.
struct MeshStrategyOptions : UpdateOptions {
  // The schedule of one replica, on as many devices as are its ranks x
  // devices.size(). There are as many replicas as the ranks of the job make.
  Schedule schedule;
  // Into the schedule's stages (Cuts of parallel/balance/cut.h).
  std::vector<int64_t> cuts;
  std::vector<c10::Device> devices = {c10::kCPU};  // this rank's
  // Samples of a microbatch, the last one's fewer where they do not divide; 0:
  // the schedule's microbatches differ by one at most.
  int64_t microbatch_size = 0;
  // Steps may have fewer samples than others, as at the end of a data set, and
  // replicas different numbers of them, some none: the gradient is that of the
  // mean over all samples of the step. A step has at most the schedule's
  // microbatches then, else as many. Replicas tell each other how many samples
  // they have before each step. With `reproducible`, which needs a
  // microbatch_size, samples may be missing at the end of the whole batch
  // alone.
  bool uneven_batches = false;
  // The other two are PyTorch's Join with and without
  // divide_by_initial_world_size; not `reproducible`, nor for a loss with a
  // weight.
  UnevenDivision uneven_division = UnevenDivision::kSamples;
  PipelineOptions pipeline;
  // See core/model/weight_gradient_sink.h; 1: each microbatch's for itself.
  int weight_gradient_batch = 1;
  // Seed of initial values, and of what layers draw.
  uint64_t seed = 0;
  // How replicas are kept alike. Parameters that wait for another
  // (delay_all_reduce_named_params) lie in its stage. Buffers are broadcast
  // after each step, not before forward: the same values, and evaluation needs
  // no collective. `optimizer_group` is the base's. `mixed_precision` is that
  // of all stages, whatever the layout.
  DistributedDataParallelOptions ddp;
  // Replaces the all-reduce: makes the hook of each stage, the same on every
  // rank: nobody compares what is within (PowerSGD's rank, say). Stages' hooks
  // are called in the schedule's order, which is that of all replicas; a hook
  // that uses another group than the one it is given must see to an order
  // there itself. Null: does not.
  std::function<absl::StatusOr<CommunicationHook>()> make_hook;
  // Microbatch m of a replica is normalised together with microbatch m of the
  // others (SyncBatchNorm): docs/layouts.md. A replica that has fewer
  // takes part with none. Excludes `averaging` and `reproducible`.
  bool sync_batch_norm = false;
  // If set, replicas train apart, each on its own gradients, and parameters are
  // averaged instead (post-local SGD); buffers are broadcast then. Optimizer
  // state stays each replica's own. Between two averagings replicas send each
  // other nothing (but, with grad_scaler, whether they skip the step), and may
  // have batches of any sizes.
  std::optional<ParameterAveragingOptions> averaging;
  // What replicas share among them. The optimizers' work and state: each keeps
  // state of its own share of a stage's parameters alone, updates those, and
  // tells the others the values (ZeRO stage 1): docs/layouts.md.
  // Gradients, too: each has the averages of its share alone. And parameters:
  // docs/layouts.md. The same bits as without, but for what
  // FullyShardedOptions::reduces_each says; but after TrainStep only gradients
  // of the own share may be averaged. Nothing to share with one replica. But
  // for kAuto it excludes `averaging`, ddp.static_graph,
  // ddp.skip_all_reduce_unused_params and compares_replicas.
  Sharding shard = Sharding::kOff;
  // Ranks that share each layer (tensor parallelism): docs/layouts.md.
  // The model's loss must be TensorParallelCrossEntropy, or another that knows
  // of it. Excludes `reproducible`, for sums depend on how many they are.
  int tensor = 1;
  // What stands between the parts of a layer is divided by tokens
  // (core/model/axis/tensor_parallel.h).
  bool sequence_parallel = true;
  // In groups of so many replicas, of which each has all (HSDP); 0: among all.
  int data_shard = 0;
  // Neighbouring layers are gathered together until they have so many
  // parameters (size_based_auto_wrap_policy's min_num_params).
  int64_t shard_min_num_params = int64_t{1} << 20;
  // With parameters that are shared: layers are gathered for each use of them
  // and freed behind it (fully_shard's reshard_after_forward). Else the
  // schedule has actions that gather and free those of a whole stage
  // (parallel/schedule/unshards.h), once a step unless
  // pipeline.max_unsharded_stages asks for less memory. The same bits.
  bool reshard_after_forward = true;
  // Weight of the past in exponential moving averages of the parameters, which
  // evaluation and inference use (torch.optim.swa_utils.AveragedModel with
  // get_ema_multi_avg_fn): docs/training.md. Less than 1; 0: there are none.
  // Excludes `averaging`. Averages follow Update and TrainStep: a strategy
  // whose parameters a server updates has none.
  double ema_decay = 0;
  // Somebody compares replicas between steps, to find one whose memory has been
  // corrupted. Where owners tell the others their values in each step nothing
  // would be found.
  bool compares_replicas = false;
  // The same bits in every layout of the mesh, for the same batch and
  // microbatch size: see docs/layouts.md.
  bool reproducible = false;
  // No parameter changes before the last collective of the step's gradients and
  // buffers has ended on this rank: a step that one of them breaks off has
  // changed none, and can be done again. Where replicas have several ranks, no
  // rank updates before all have come so far (Strategy::EndBrokenStep). Else
  // each device updates its stages as soon as it can. Excludes `averaging`, and
  // a shard other than kOff.
  bool updates_last = false;
  // Into how many groups a whole batch's microbatches are put, whose sums are
  // added in a tree (ordered_gradients.h); 0: each is a group.
  int gradient_groups = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_MESH_STRATEGY_OPTIONS_H_
