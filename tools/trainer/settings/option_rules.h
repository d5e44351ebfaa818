// Rules of training options: what fits together, a table of them for each
// subject. InvalidArgument names the flags. For options.cc.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_OPTION_RULES_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_OPTION_RULES_H_

#include "absl/status/status.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

inline constexpr char kParameterServer[] = "parameter_server";

absl::Status CheckDevices(const DeviceSettings& settings);
absl::Status CheckDdp(const DdpSettings& settings);

// Whether what was given suits the optimizer, the schedule of its learning
// rates, and what is clipped.
absl::Status CheckOptimizer(const TrainOptions& options);

// The head of the model, and which activations are kept.
absl::Status CheckModel(const TrainOptions& options);

// Whether --lora_rank and what belongs to it say of adapters what can be.
absl::Status CheckAdapters(const TrainOptions& options);

absl::Status CheckData(const TrainOptions& options);

// Whether what is given of a step's samples and tokens says it once.
absl::Status CheckBatch(const TrainOptions& options);

// Whether what was given suits --strategy=parameter_server; or, with another,
// that nothing was given that is its alone.
absl::Status CheckParameterServer(const TrainOptions& options);

// --backend, --kernels, --kernel_cache, and how GPUs compute.
absl::Status CheckBackend(const TrainOptions& options);

// Whether precisions fit each other, and what else says how gradients travel.
absl::Status CheckPrecision(const TrainOptions& options);

// What techniques of a training step exclude.
absl::Status CheckParts(const TrainOptions& options);

// When a job is evaluated, what follows from it, and the texts it makes.
absl::Status CheckEvaluation(const TrainOptions& options);

// --trace_file and --trace_steps.
absl::Status CheckTracing(const TrainOptions& options);

// --tensorboard_dir, --histograms_every and --misclassified_images.
absl::Status CheckTensorBoard(const TrainOptions& options);

// Whether what was given suits --replace_replicas: replicas that have, each,
// all of the job's state after every step.
absl::Status CheckReplacedReplicas(const TrainOptions& options);

// Whether --eval_only has weights, --allow_missing and --allow_unexpected have
// a use, checkpoints do not come to lie beside --init_from's weights, and one
// file does not take another's place.
absl::Status CheckFiles(const TrainOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_OPTION_RULES_H_
