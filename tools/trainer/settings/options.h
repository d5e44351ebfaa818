// Training options: what a job is asked to do, the trainer's own flags as a
// value.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_OPTIONS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/precision/loss_scale.h"
#include "core/precision/mixed_precision.h"
#include "datasets/images/image_options.h"
#include "models/lora/lora.h"
#include "parallel/activation_checkpointing/checkpointed_groups.h"
#include "tools/trainer/settings/comm_hook.h"
#include "tools/trainer/settings/pipeline_settings.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// The most threads that --intra_op_threads and OMP_NUM_THREADS may ask for.
constexpr int kMostIntraOpThreads = 1024;

// Which devices a job runs on.
struct DeviceSettings {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/device_settings.def"
};

// How replicas are kept alike (--strategy=ddp and hybrid), and what parameter
// servers are.
struct DdpSettings {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/ddp_settings.def"
};

// What becomes of images, of data sets that have them.
struct ImageSettings {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/image_settings.def"
};

struct TrainOptions {
#define SETTING(kind, name, value, range, help) \
  setting::kind::Field name = setting::kind::Of(value);
#include "tools/trainer/settings/train_settings.def"
  ImageSettings images;
  DeviceSettings devices;
  PipelineSettings pipeline;
  DdpSettings ddp;
};

// Reads the flags (of the tables beside this file) and checks each by itself:
// an error names the flag, what was given and what it takes. Paths come back
// relative to where the user stands.
absl::StatusOr<TrainOptions> TrainOptionsFromFlags();

// The checks of TrainOptionsFromFlags, on a value.
absl::Status Validate(const TrainOptions& options);

// The same for the data sets that have a use for it.
ImageOptions RequestedImageOptions(const ImageSettings& settings);

// Whether averaged parameters are more than their mean (DiLoCo).
bool HasOuterOptimizer(const DdpSettings& settings);

// Whether what says how replicas are averaged has a meaning for so many of
// them: a pipeline is one replica, for which nothing is averaged, and several
// side by side take less of it than replicas in one piece.
absl::Status CheckReplicas(const TrainOptions& options, int64_t replicas);

// Whether one replica alone does something by all that was given. Not for a job
// whose number of replicas may change.
absl::Status CheckForOneReplica(const TrainOptions& options);

// Whether the steps to be traced are still to come, of a job that has done
// `done` of `in_all` steps; OK where none is to be traced.
absl::Status CheckStepsToTrace(const TrainOptions& options, int64_t done,
                               int64_t in_all);

// How many ranks are parameter servers: 0 unless --strategy=parameter_server.
int ParameterServerCount(const TrainOptions& options);

// Tokens of a sample of --dataset=tokens and synthetic_tokens: --context, or
// --synthetic_shape, or the usual ones.
int64_t ResolvedContext(const TrainOptions& options);

// The samples of a step that will be used, of all ranks together: --batch_size,
// else as many as --tokens_per_step makes, else 64. Requires what Validate
// accepts.
int64_t ResolvedBatchSize(const TrainOptions& options);

// What they come from, for a message: "--batch_size=64", or
// "--tokens_per_step=8192 (64 samples)".
std::string BatchSizeAsGiven(const TrainOptions& options);

// Whether each of so many replicas has as many whole samples of
// --tokens_per_step, if that is given; else the message has the nearest numbers
// of tokens that would do.
absl::Status CheckTokensPerStep(const TrainOptions& options, int64_t replicas);

// Into how many parts a replica that is no pipeline cuts its `samples` of a
// step: --gradient_accumulation_steps, or as many as --microbatch_size makes.
int64_t AccumulationSteps(const TrainOptions& options, int64_t samples);

// The learning rate that will be used: --learning_rate, or where that is not
// given the optimizer's usual one (sgd 0.05, adam and adamw 0.001).
double ResolvedLearningRate(const TrainOptions& options);

// Whether --lr_schedule falls until the last step, and so goes by how many
// there are in all.
bool FallsToTheEnd(const std::string& lr_schedule);

// --comm_hook. Requires what Validate accepts.
CommHook RequestedHook(const DdpSettings& settings);

// What else decides about the pipeline.
PipelineContext MakePipelineContext(const TrainOptions& options);

// --dtype, --reduce_dtype and --buffer_dtype.
MixedPrecision RequestedPrecision(const TrainOptions& options);

// --init_scale, --growth_factor, --backoff_factor and --growth_interval, where
// products are computed in fp16; else the loss is not scaled.
std::optional<GradScalerOptions> RequestedGradScaler(
    const TrainOptions& options);

// Whether kernels are chosen by timing them, by --kernels.
bool MeasuresKernels(const TrainOptions& options);

// --checkpoint_layers and --checkpoint_every.
SelectiveCheckpointing RequestedSelectiveCheckpointing(
    const TrainOptions& options);

// --lora_rank, --lora_alpha, --lora_on and --lora_dropout; nothing: the model
// itself is trained.
std::optional<LoraOptions> RequestedLora(const TrainOptions& options);

// Every option as (flag name, value), in the order in which they are printed.
SettingValues Describe(const TrainOptions& options);
SettingValues Describe(const DdpSettings& settings);
SettingValues Describe(const ImageSettings& settings);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_OPTIONS_H_
