// What a training job is asked to do: the trainer's own flags as a value.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_OPTIONS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/trainer/settings/ddp_settings.h"
#include "tools/trainer/settings/device_settings.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {

// The most threads that --intra_op_threads and OMP_NUM_THREADS may ask for.
constexpr int kMostIntraOpThreads = 1024;

struct TrainOptions {
  std::string model = "cnn";
  std::string dataset = "fashion_mnist";
  std::string data_dir;
  std::vector<int64_t> synthetic_shape;  // empty: the data set's own default
  int64_t synthetic_classes = 10;
  int64_t synthetic_samples = 0;  // 0: the data set's own default

  int64_t epochs = 1;
  int64_t max_steps = 0;    // 0: no limit but the epochs
  int64_t batch_size = 64;  // of all ranks together
  bool drop_last = true;
  double z_loss = 0;  // its coefficient; 0: none
  bool eval_only = false;

  std::string optimizer = "sgd";
  double learning_rate = 0;  // 0: the optimizer's usual one
  double momentum = 0.9;
  bool nesterov = false;
  bool amsgrad = false;
  double weight_decay = 0;
  std::string lr_schedule = "constant";
  int64_t lr_warmup_steps = 0;
  int64_t lr_step_size = 0;  // in steps
  double lr_gamma = 0.1;
  std::string no_weight_decay_on;  // a regular expression; empty: none
  double clip_grad_norm = 0;       // 0: off
  double clip_grad_norm_type = 2;
  bool error_if_nonfinite = false;
  double clip_grad_value = 0;  // 0: off; before the norm

  uint64_t seed = 0;
  DeviceSettings devices;
  int64_t intra_op_threads = 0;  // 0: this machine's cores shared by its ranks
  int64_t workers = 1;
  std::string strategy = "auto";
  PipelineSettings pipeline;
  DdpSettings ddp;
  std::string backend = "shm";
  std::string interface;
  double timeout_s = 1800;
  double straggler_warning_s = 0;  // 0: off

  int64_t log_every = 25;
  std::string save_dir = "checkpoints";
  int64_t save_every = 0;  // in steps; 0: after each epoch alone
  std::string resume;
  std::string metrics_file;
  std::string log_dir;
  std::string trace_file;  // empty: no trace
  int64_t trace_step = 3;  // which step, from 1
};

// Reads the flags (options_flags.cc defines them) and checks each by itself:
// an error names the flag, what was given and what it takes. Paths come back
// relative to where the user stands.
absl::StatusOr<TrainOptions> TrainOptionsFromFlags();

// The checks of TrainOptionsFromFlags, on a value.
absl::Status Validate(const TrainOptions& options);

// Whether what says how replicas are averaged has a meaning for so many of
// them: a pipeline is one replica, for which nothing is averaged, and several
// side by side take less of it than replicas in one piece.
absl::Status CheckReplicas(const TrainOptions& options, int64_t replicas);

// The learning rate that will be used: --learning_rate, or the optimizer's
// usual one (sgd 0.05, adam and adamw 0.001).
double ResolvedLearningRate(const TrainOptions& options);

// What else decides about the pipeline.
PipelineSurroundings SurroundingsOf(const TrainOptions& options);

// Every option as (flag name, text), in the order in which they are printed.
std::vector<std::pair<std::string, std::string>> Describe(
    const TrainOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_OPTIONS_H_
