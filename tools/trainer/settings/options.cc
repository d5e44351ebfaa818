#include "tools/trainer/settings/options.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

bool IsSynthetic(const TrainOptions& options) {
  return options.dataset == "synthetic" ||
         options.dataset == "synthetic_tokens";
}

// Of those that come with the trainer: what registered ones go by is not known.
absl::Status CheckData(const TrainOptions& options) {
  const bool shaped =
      !options.synthetic_shape.empty() || options.synthetic_samples > 0;
  const bool from_files = options.dataset == "fashion_mnist" ||
                          options.dataset == "mnist" ||
                          options.dataset == "tokens";
  if (shaped && from_files) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--synthetic_shape and --synthetic_samples are for --dataset=synthetic "
        "and synthetic_tokens, but --dataset=",
        options.dataset, " was given"));
  }
  if (options.synthetic_classes != TrainOptions().synthetic_classes &&
      (from_files || options.dataset == "synthetic_tokens")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--synthetic_classes=", options.synthetic_classes,
        " is for --dataset=synthetic, but --dataset=", options.dataset,
        " was given"));
  }
  if (!options.data_dir.empty() && IsSynthetic(options)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--data_dir=", options.data_dir, " was given, but --dataset=",
        options.dataset, " is made up and reads no files"));
  }
  const bool has_images = options.dataset == "fashion_mnist" ||
                          options.dataset == "mnist" ||
                          options.dataset == "synthetic";
  if (options.vocabulary > 0 &&
      (has_images || options.dataset == "synthetic_tokens")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--vocabulary=", options.vocabulary,
        " is for --dataset=tokens, but --dataset=", options.dataset,
        " was given"));
  }
  if (options.context > 0 && (has_images || !options.synthetic_shape.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--context=", options.context,
                     " is for --dataset=tokens and synthetic_tokens, without "
                     "--synthetic_shape, but --dataset=",
                     options.dataset, " was given",
                     has_images ? "" : ", with --synthetic_shape"));
  }
  if (options.dataset == "synthetic_tokens" &&
      options.synthetic_shape.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--synthetic_shape=", absl::StrJoin(options.synthetic_shape, ","),
        ": --dataset=synthetic_tokens takes one number, the context length"));
  }
  return absl::OkStatus();
}

absl::Status CheckTokenBytes(const TrainOptions& options) {
  const int64_t given = options.token_bytes;
  if (given == 0) return absl::OkStatus();
  if (given != 2 && given != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("--token_bytes=", given,
                     ": expected 2 or 4, or 0 for what the files say"));
  }
  if (options.dataset == "tokens") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--token_bytes=", given, " is for --dataset=tokens, but --dataset=",
      options.dataset, " was given"));
}

absl::Status CheckDocuments(const TrainOptions& options) {
  if (options.document_masks && options.dataset != "tokens") {
    return absl::InvalidArgumentError(
        absl::StrCat("--document_masks is for --dataset=tokens, but --dataset=",
                     options.dataset, " was given"));
  }
  if (options.end_of_text < 0 || options.document_masks) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--end_of_text=", options.end_of_text,
                   " tells documents apart for --document_masks: give that, "
                   "too, or leave it out"));
}

absl::Status CheckLossChunk(const TrainOptions& options) {
  if (options.loss_chunk == 0) return absl::OkStatus();
  if (options.z_loss > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--loss_chunk=", options.loss_chunk,
        " computes no logits for --z_loss to look at: leave one out"));
  }
  if (options.strategy != "data_parallel") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--loss_chunk=", options.loss_chunk,
      " hands the head's weight to the loss, but --strategy=data_parallel "
      "gathers samples from its devices alone: use --strategy=ddp with a rank "
      "a device"));
}

absl::Status CheckVocabParallel(const TrainOptions& options) {
  if (options.vocab_parallel == 1) return absl::OkStatus();
  std::string why;
  if (options.z_loss > 0) {
    why = " computes no logits of the whole vocabulary for --z_loss to look at";
  } else if (options.strategy == "data_parallel") {
    why = " needs a pipeline, or one device, not --strategy=data_parallel";
  } else if (ServersOf(options) > 0) {
    why = absl::StrCat(" is for replicas that have no servers, but --strategy=",
                       options.strategy, " was given");
  }
  if (why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--vocab_parallel=", options.vocab_parallel, why, ": leave one out"));
}

absl::Status CheckCheckpointing(const TrainOptions& options) {
  const SelectiveCheckpointing selective = SelectiveOf(options);
  const absl::Status groups = CheckpointedGroups({}, selective).status();
  if (!groups.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", groups.message()));
  }
  if (!selective.is_on() || options.pipeline.balance != "profile") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      selective.layers.empty()
          ? absl::StrCat("--checkpoint_every=", selective.every)
          : absl::StrCat("--checkpoint_layers=", selective.layers),
      " drops what --balance=profile would plan with, which knows of "
      "--checkpoint_activations alone: leave one out, or balance another way"));
}

// What would let the layout, or the machine, be seen in the result.
absl::Status CheckReproducible(const TrainOptions& options) {
  if (!options.pipeline.reproducible) return absl::OkStatus();
  if (options.ddp.comm_hook != "none") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--comm_hook=", options.ddp.comm_hook,
        " rounds what replicas send, which --reproducible cannot have: leave "
        "one out"));
  }
  if (options.kernels == "measured") {
    return absl::InvalidArgumentError(
        "--kernels=measured lets another machine have other bits, which "
        "--reproducible cannot have: leave one out");
  }
  const std::set<std::string> others = {"average_parameters_every",
                                        "delay_all_reduce_named_params",
                                        "join_divide_by",
                                        "parameters_to_ignore",
                                        "skip_all_reduce_unused_params",
                                        "static_graph",
                                        "sync_batch_norm"};
  for (const auto& [flag, value] :
       Differing(Describe(options.ddp), Describe(DdpSettings()))) {
    if (others.count(flag) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", ToText(value),
        " lets sums depend on the layout, which --reproducible cannot have: "
        "leave one out"));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckBackend(options));
  TANDEM_RETURN_IF_ERROR(CheckPrecision(options));
  TANDEM_RETURN_IF_ERROR(CheckValues(options));
  TANDEM_RETURN_IF_ERROR(CheckReproducible(options));
  if (options.ddp.uneven_inputs == "join" && options.drop_last) {
    return absl::InvalidArgumentError(
        "--uneven_inputs=join trains on every sample, but those at an epoch's "
        "end are left out: give --nodrop_last as well");
  }
  if (options.ddp.sync_batch_norm && options.strategy == "data_parallel") {
    return absl::InvalidArgumentError(
        "--sync_batch_norm is of ranks, and does not reach the replicas that "
        "--strategy=data_parallel has on each: use --strategy=ddp with a rank "
        "a device");
  }
  TANDEM_RETURN_IF_ERROR(CheckTracing(options));
  TANDEM_RETURN_IF_ERROR(CheckReplacedReplicas(options));
  TANDEM_RETURN_IF_ERROR(CheckInitialWeights(options));
  return CheckSaving(options);
}

}  // namespace

absl::Status Validate(const TrainOptions& options) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, options.name));
#include "tools/trainer/settings/train_settings.def"
  TANDEM_RETURN_IF_ERROR(Validate(options.devices));
  TANDEM_RETURN_IF_ERROR(Validate(options.pipeline, SurroundingsOf(options)));
  TANDEM_RETURN_IF_ERROR(Validate(options.ddp));
  // How many replicas there are is known later, but for a pipeline.
  TANDEM_RETURN_IF_ERROR(
      CheckReplicas(options, options.strategy == "pipeline" ? 1 : 2));
  TANDEM_RETURN_IF_ERROR(CheckOptimizer(options));
  TANDEM_RETURN_IF_ERROR(CheckLossChunk(options));
  TANDEM_RETURN_IF_ERROR(CheckVocabParallel(options));
  TANDEM_RETURN_IF_ERROR(CheckCheckpointing(options));
  TANDEM_RETURN_IF_ERROR(CheckData(options));
  TANDEM_RETURN_IF_ERROR(CheckTokenBytes(options));
  TANDEM_RETURN_IF_ERROR(CheckDocuments(options));
  TANDEM_RETURN_IF_ERROR(CheckParameterServer(options));
  return CheckTogether(options);
}

PipelineSurroundings SurroundingsOf(const TrainOptions& options) {
  return {options.strategy, options.devices.devices_per_rank,
          options.batch_size, options.devices.cut};
}

SelectiveCheckpointing SelectiveOf(const TrainOptions& options) {
  return {options.checkpoint_layers, options.checkpoint_every};
}

SettingValues Describe(const TrainOptions& options) {
  TrainOptions shown = options;
  shown.learning_rate = ResolvedLearningRate(options);
  SettingValues described = {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ValueOf(shown.name)},
#include "tools/trainer/settings/train_settings.def"
  };
  for (const SettingValues& more :
       {Describe(options.devices), Describe(options.pipeline),
        Describe(options.ddp)}) {
    described.insert(described.end(), more.begin(), more.end());
  }
  return described;
}

}  // namespace tandem
