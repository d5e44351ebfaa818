#include "tools/trainer/options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

absl::Status AtLeast(const char* flag, double given, double least) {
  if (given >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", given, ": must be at least ", least));
}

absl::Status OneOf(const char* flag, const std::string& given,
                   const std::vector<std::string>& known) {
  for (const std::string& name : known) {
    if (given == name) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", given,
                   ": unknown; known: ", absl::StrJoin(known, ", ")));
}

absl::Status FirstError(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const TrainOptions& options) {
  if (options.lr_schedule == "step" && options.lr_step_size == 0) {
    return absl::InvalidArgumentError(
        "--lr_schedule=step needs --lr_step_size=STEPS, the steps between two "
        "decays");
  }
  if (options.nesterov && options.momentum == 0) {
    return absl::InvalidArgumentError(
        "--nesterov needs a momentum, but --momentum=0 was given");
  }
  if (options.eval_only && options.resume.empty()) {
    return absl::InvalidArgumentError(
        "--eval_only evaluates a checkpoint: name it with --resume=PATH");
  }
  if (options.save_every > 0 && options.save_dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--save_every=", options.save_every,
        " was given, but --save_dir is empty: name a folder for checkpoints"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const TrainOptions& options) {
  return FirstError({
      AtLeast("epochs", options.epochs, 1),
      AtLeast("max_steps", options.max_steps, 0),
      AtLeast("batch_size", options.batch_size, 1),
      AtLeast("learning_rate", options.learning_rate, 0),
      AtLeast("momentum", options.momentum, 0),
      AtLeast("weight_decay", options.weight_decay, 0),
      AtLeast("lr_warmup_steps", options.lr_warmup_steps, 0),
      AtLeast("lr_step_size", options.lr_step_size, 0),
      AtLeast("lr_gamma", options.lr_gamma, 0),
      AtLeast("clip_grad_norm", options.clip_grad_norm, 0),
      AtLeast("intra_op_threads", options.intra_op_threads, 0),
      AtLeast("workers", options.workers, 0),
      AtLeast("timeout", options.timeout_s, 0.001),
      AtLeast("log_every", options.log_every, 1),
      AtLeast("save_every", options.save_every, 0),
      AtLeast("synthetic_classes", options.synthetic_classes, 2),
      AtLeast("synthetic_samples", options.synthetic_samples, 0),
      OneOf("optimizer", options.optimizer, {"sgd", "adam", "adamw"}),
      OneOf("lr_schedule", options.lr_schedule, {"constant", "step", "cosine"}),
      OneOf("device", options.device, {"cpu", "cuda"}),
      CheckTogether(options),
  });
}

double ResolvedLearningRate(const TrainOptions& options) {
  if (options.learning_rate > 0) return options.learning_rate;
  return options.optimizer == "sgd" ? 0.05 : 0.001;
}

std::vector<std::pair<std::string, std::string>> Describe(
    const TrainOptions& options) {
  auto text = [](const auto& value) { return absl::StrCat(value); };
  return {
      {"model", options.model},
      {"dataset", options.dataset},
      {"data_dir", options.data_dir},
      {"epochs", text(options.epochs)},
      {"max_steps", text(options.max_steps)},
      {"batch_size", text(options.batch_size)},
      {"optimizer", options.optimizer},
      {"learning_rate", text(ResolvedLearningRate(options))},
      {"momentum", text(options.momentum)},
      {"nesterov", options.nesterov ? "true" : "false"},
      {"weight_decay", text(options.weight_decay)},
      {"lr_schedule", options.lr_schedule},
      {"lr_warmup_steps", text(options.lr_warmup_steps)},
      {"clip_grad_norm", text(options.clip_grad_norm)},
      {"seed", text(options.seed)},
      {"device", options.device},
      {"workers", text(options.workers)},
      {"log_every", text(options.log_every)},
      {"save_dir", options.save_dir},
      {"save_every", text(options.save_every)},
      {"resume", options.resume},
      {"metrics_file", options.metrics_file},
  };
}

}  // namespace tandem
