#include "tools/trainer/settings/options.h"

#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/trainer/settings/flag_checks.h"

namespace tandem {
namespace {

bool IsSynthetic(const TrainOptions& options) {
  return options.dataset.rfind("synthetic", 0) == 0;
}

absl::Status CheckData(const TrainOptions& options) {
  const bool shaped =
      !options.synthetic_shape.empty() || options.synthetic_samples > 0;
  const bool from_files =
      options.dataset == "fashion_mnist" || options.dataset == "mnist";
  if (shaped && from_files) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--synthetic_shape and --synthetic_samples are for --dataset=synthetic "
        "and synthetic_tokens, but --dataset=",
        options.dataset, " was given"));
  }
  if (!options.data_dir.empty() && IsSynthetic(options)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--data_dir=", options.data_dir, " was given, but --dataset=",
        options.dataset, " is made up and reads no files"));
  }
  if (options.dataset == "synthetic_tokens" &&
      options.synthetic_shape.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--synthetic_shape=", absl::StrJoin(options.synthetic_shape, ","),
        ": --dataset=synthetic_tokens takes one number, the context length"));
  }
  return absl::OkStatus();
}

absl::Status CheckClipping(const TrainOptions& options) {
  if (!(options.clip_grad_norm_type > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--clip_grad_norm_type=", options.clip_grad_norm_type,
                     ": must be greater than 0, such as 2, 1 or inf"));
  }
  if (options.clip_grad_norm > 0) return absl::OkStatus();
  if (options.clip_grad_norm_type != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--clip_grad_norm_type=", options.clip_grad_norm_type,
        " says which norm is clipped: give --clip_grad_norm=NORM as well"));
  }
  if (options.error_if_nonfinite) {
    return absl::InvalidArgumentError(
        "--error_if_nonfinite looks at the norm that is clipped: give "
        "--clip_grad_norm=NORM as well");
  }
  return absl::OkStatus();
}

absl::Status CheckWeightDecay(const TrainOptions& options) {
  if (options.no_weight_decay_on.empty()) return absl::OkStatus();
  if (options.weight_decay == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--no_weight_decay_on=", options.no_weight_decay_on,
        " makes exceptions from --weight_decay, which is 0: give both"));
  }
  try {
    const std::regex pattern(options.no_weight_decay_on);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--no_weight_decay_on=", options.no_weight_decay_on,
        ": not a regular expression (ECMAScript's): ", error.what()));
  }
  return absl::OkStatus();
}

// What the hybrid takes, beside PowerSGD's.
bool IsForHybrid(const std::string& flag) {
  return flag == "broadcast_buffers" || flag == "bucket_cap_mb" ||
         flag == "bucket_cap_mb_list" || flag == "find_unused_parameters" ||
         flag == "comm_hook" || absl::StartsWith(flag, "power_sgd_");
}

absl::Status CheckTogether(const TrainOptions& options) {
  if (options.pipeline.reproducible && options.ddp.comm_hook != "none") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--comm_hook=", options.ddp.comm_hook,
        " rounds what replicas send, which --reproducible cannot have: leave "
        "one out"));
  }
  if (options.nesterov && options.optimizer != "sgd") {
    return absl::InvalidArgumentError(
        absl::StrCat("--nesterov is sgd's, but --optimizer=", options.optimizer,
                     " was given"));
  }
  if (options.amsgrad && options.optimizer == "sgd") {
    return absl::InvalidArgumentError(
        "--amsgrad is for adam and adamw, but --optimizer=sgd was given");
  }
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
      Between("epochs", options.epochs, 1, 1e9),
      Between("max_steps", options.max_steps, 0, 1e15),
      Between("batch_size", options.batch_size, 1, 1e9),
      AtLeast("learning_rate", options.learning_rate, 0),
      AtLeast("z_loss", options.z_loss, 0),
      AtLeast("momentum", options.momentum, 0),
      AtLeast("weight_decay", options.weight_decay, 0),
      AtLeast("lr_warmup_steps", options.lr_warmup_steps, 0),
      AtLeast("lr_step_size", options.lr_step_size, 0),
      AtLeast("lr_gamma", options.lr_gamma, 0),
      AtLeast("clip_grad_norm", options.clip_grad_norm, 0),
      Between("intra_op_threads", options.intra_op_threads, 0,
              kMostIntraOpThreads),
      Between("workers", options.workers, 0, 1024),
      Between("timeout", options.timeout_s, 0.001, 1e7),
      AtLeast("log_every", options.log_every, 1),
      AtLeast("save_every", options.save_every, 0),
      Between("synthetic_classes", options.synthetic_classes, 2, 1e6),
      Between("synthetic_samples", options.synthetic_samples, 0, 1e9),
      OneOf("optimizer", options.optimizer, {"sgd", "adam", "adamw"}),
      OneOf("lr_schedule", options.lr_schedule, {"constant", "step", "cosine"}),
      Validate(options.devices),
      Validate(options.pipeline, SurroundingsOf(options)),
      AtLeast("clip_grad_value", options.clip_grad_value, 0),
      Between("straggler_warning", options.straggler_warning_s, 0, 1e7),
      AtLeast("trace_step", options.trace_step, 1),
      OneOf("backend", options.backend, {"shm", "gloo"}),
      Validate(options.ddp),
      // How many replicas there are is known later, but for a pipeline.
      CheckReplicas(options, options.strategy == "pipeline" ? 1 : 2),
      CheckClipping(options),
      CheckWeightDecay(options),
      CheckData(options),
      CheckTogether(options),
  });
}

absl::Status CheckReplicas(const TrainOptions& options, int64_t replicas) {
  if (!IsPipeline(options.pipeline, SurroundingsOf(options))) {
    return absl::OkStatus();
  }
  const auto usual = Describe(DdpSettings());
  const auto given = Describe(options.ddp);
  const bool is_hybrid = options.strategy == "hybrid" ||
                         options.pipeline.reproducible || replicas > 1;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == usual[i]) continue;
    if (is_hybrid && IsForHybrid(given[i].first)) continue;
    const bool accumulates = given[i].first == "gradient_accumulation_steps";
    return absl::InvalidArgumentError(absl::StrCat(
        "--", given[i].first, "=", given[i].second,
        is_hybrid ? " is for replicas in one piece: leave it out"
                  : " is for replicas, but a pipeline is one replica and "
                    "averages nothing: leave it out",
        accumulates
            ? ", and give a larger --batch_size with more --microbatches"
            : ""));
  }
  return absl::OkStatus();
}

PipelineSurroundings SurroundingsOf(const TrainOptions& options) {
  return {options.strategy, options.devices.devices_per_rank,
          options.batch_size, options.devices.cut};
}

double ResolvedLearningRate(const TrainOptions& options) {
  if (options.learning_rate > 0) return options.learning_rate;
  return options.optimizer == "sgd" ? 0.05 : 0.001;
}

std::vector<std::pair<std::string, std::string>> Describe(
    const TrainOptions& options) {
  auto text = [](const auto& value) { return absl::StrCat(value); };
  std::vector<std::pair<std::string, std::string>> described = {
      {"model", options.model},
      {"dataset", options.dataset},
      {"data_dir", options.data_dir},
      {"synthetic_shape", absl::StrJoin(options.synthetic_shape, ",")},
      {"synthetic_samples", text(options.synthetic_samples)},
      {"synthetic_classes", text(options.synthetic_classes)},
      {"epochs", text(options.epochs)},
      {"max_steps", text(options.max_steps)},
      {"batch_size", text(options.batch_size)},
      {"drop_last", options.drop_last ? "true" : "false"},
      {"z_loss", text(options.z_loss)},
      {"optimizer", options.optimizer},
      {"learning_rate", text(ResolvedLearningRate(options))},
      {"momentum", text(options.momentum)},
      {"nesterov", options.nesterov ? "true" : "false"},
      {"amsgrad", options.amsgrad ? "true" : "false"},
      {"weight_decay", text(options.weight_decay)},
      {"no_weight_decay_on", options.no_weight_decay_on},
      {"lr_schedule", options.lr_schedule},
      {"lr_warmup_steps", text(options.lr_warmup_steps)},
      {"lr_step_size", text(options.lr_step_size)},
      {"lr_gamma", text(options.lr_gamma)},
      {"clip_grad_norm", text(options.clip_grad_norm)},
      {"clip_grad_norm_type", text(options.clip_grad_norm_type)},
      {"error_if_nonfinite", options.error_if_nonfinite ? "true" : "false"},
      {"clip_grad_value", text(options.clip_grad_value)},
      {"seed", text(options.seed)},
      {"backend", options.backend},
      {"interface", options.interface},
      {"timeout", text(options.timeout_s)},
      {"straggler_warning", text(options.straggler_warning_s)},
      {"workers", text(options.workers)},
      {"log_every", text(options.log_every)},
      {"save_dir", options.save_dir},
      {"save_every", text(options.save_every)},
      {"resume", options.resume},
      {"eval_only", options.eval_only ? "true" : "false"},
      {"log_dir", options.log_dir},
      {"trace_file", options.trace_file},
      {"trace_step", text(options.trace_step)},
      {"metrics_file", options.metrics_file},
  };
  const auto devices = Describe(options.devices);
  described.insert(described.end(), devices.begin(), devices.end());
  const auto pipeline = Describe(options.pipeline);
  described.insert(described.end(), pipeline.begin(), pipeline.end());
  return described;
}

}  // namespace tandem
