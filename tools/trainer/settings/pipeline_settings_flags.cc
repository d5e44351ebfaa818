// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <cstdint>
#include <string>

#include "absl/flags/flag.h"
#include "tools/trainer/settings/pipeline_settings.h"

ABSL_FLAG(int64_t, pipe, 1,
          "Ranks along a pipeline, each of which has stages of its own: stages "
          "= --pipe x --devices_per_rank x --chunks. For --strategy=pipeline; "
          "must divide the number of ranks.");
ABSL_FLAG(std::string, schedule, "1f1b",
          "In which order a pipeline's devices work: gpipe, 1f1b, "
          "interleaved_1f1b, looped_bfs, zb_h1, zb_v, or a file with one of "
          "your own (a path with a slash); bazel run //tools:schedule draws "
          "them.");
ABSL_FLAG(int64_t, chunks, 0,
          "Stages on each device of a pipeline; 0: 2 for zb_v, "
          "interleaved_1f1b and looped_bfs, else 1.");
ABSL_FLAG(int64_t, microbatches, 0,
          "Microbatches that a step is cut into for a pipeline; 0: as "
          "--microbatch_size says, else twice as many as there are stages, at "
          "most --batch_size.");
ABSL_FLAG(
    int64_t, microbatch_size, 0,
    "Samples of a microbatch, instead of --microbatches; the last one may "
    "have fewer.");
ABSL_FLAG(std::string, balance, "",
          "Where to cut the model for several devices: uniform (as many layers "
          "each), parameters (the largest part as small as can be; what empty "
          "means), profile (measures each layer first; the slowest part as "
          "fast as can be, within --device_memory), type:REGEX (as many layers "
          "of matching types each), or the layers with which parts begin, as "
          "for --cut (layer3,fc). Prints its table.");
ABSL_FLAG(
    std::string, checkpoint_activations, "never",
    "Whether a pipeline's stages drop what they keep for backward and "
    "compute it a second time: never, except_last (the last microbatch's, "
    "which is needed at once, are kept) or always. Gradients are the "
    "same, bit for bit.");
ABSL_FLAG(bool, deferred_batch_norm, false,
          "BatchNorm's running statistics in a pipeline are those of the whole "
          "mini-batch, not of each microbatch in turn.");
ABSL_FLAG(int64_t, weight_gradient_batch, 0,
          "Microbatches of a pipeline whose weight gradients are computed "
          "together, in one product, which is faster and keeps their inputs "
          "for longer; 0: each by itself.");
ABSL_FLAG(bool, reproducible, false,
          "Losses and weights have the same bits for every --nproc_per_node, "
          "--pipe, --devices_per_rank and --schedule, given --batch_size and "
          "--microbatch_size, which it needs. Batches are contiguous parts of "
          "the epoch's order; --intra_op_threads is 1 unless it is given. For "
          "every strategy. docs/hybrid.md says what it costs.");
ABSL_FLAG(int64_t, gradient_groups, 0,
          "For --reproducible: into how many groups the microbatches of a step "
          "are put, of all ranks together; gradients are summed in order "
          "within a group and in a tree across groups. The number of replicas "
          "must divide it. Fewer groups cost less. 0: each microbatch is one.");

namespace tandem {

PipelineSettings PipelineSettingsFromFlags() {
  PipelineSettings settings;
  settings.pipe = absl::GetFlag(FLAGS_pipe);
  settings.schedule = absl::GetFlag(FLAGS_schedule);
  settings.chunks = absl::GetFlag(FLAGS_chunks);
  settings.microbatches = absl::GetFlag(FLAGS_microbatches);
  settings.microbatch_size = absl::GetFlag(FLAGS_microbatch_size);
  settings.balance = absl::GetFlag(FLAGS_balance);
  settings.checkpoint_activations = absl::GetFlag(FLAGS_checkpoint_activations);
  settings.deferred_batch_norm = absl::GetFlag(FLAGS_deferred_batch_norm);
  settings.weight_gradient_batch = absl::GetFlag(FLAGS_weight_gradient_batch);
  settings.reproducible = absl::GetFlag(FLAGS_reproducible);
  settings.gradient_groups = absl::GetFlag(FLAGS_gradient_groups);
  return settings;
}

}  // namespace tandem
