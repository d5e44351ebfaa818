// Rules of what is trained, on which devices, with which optimizer, and of the
// files that a job reads and writes.

#include "tools/trainer/settings/option_rules.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"
#include "models/lora/lora.h"

namespace tandem {
namespace {

// Why the pattern is no regular expression; empty: it is one.
std::string RegexError(const std::string& pattern) {
  try {
    const std::regex regex(pattern);
  } catch (const std::regex_error& error) {
    return error.what();
  }
  return "";
}

// Whether two paths are the same by name, or by the file system.
bool AreSame(const std::string& one, const std::string& other) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::path(one).lexically_normal() ==
             fs::path(other).lexically_normal() ||
         fs::equivalent(one, other, error);
}

// The first flag about checkpoints that was given; empty: none.
std::string FirstForCheckpoints(const TrainOptions& options) {
  if (options.save_every > 0) {
    return absl::StrCat("--save_every=", options.save_every);
  }
  if (options.save_every_epochs != TrainOptions().save_every_epochs) {
    return absl::StrCat("--save_every_epochs=", options.save_every_epochs);
  }
  if (options.keep_last > 0) {
    return absl::StrCat("--keep_last=", options.keep_last);
  }
  if (options.async_save) return "--async_save";
  if (options.keep_best != "off") {
    return absl::StrCat("--keep_best=", options.keep_best);
  }
  return options.resume == "auto" ? "--resume=auto" : "";
}

bool IsMemory(const std::string& text) {
  const auto bytes = ParseByteSize(text);
  return bytes.ok() && *bytes > 0;
}

}  // namespace

absl::Status CheckDevices(const DeviceSettings& settings) {
  const bool has_memory = !settings.device_memory.empty();
  const bool is_sim = settings.device == "sim";
  const bool delays = settings.sim_delay_us > 0;
  const bool has_delay_seed = settings.sim_delay_seed > 0;
  return CheckRules({
      {has_memory && !IsMemory(settings.device_memory),
       absl::StrCat("--device_memory=", settings.device_memory,
                    ": expected a size like 80GiB or 512MiB")},
      {settings.share_devices && settings.device == "cpu",
       "--share_devices is for GPUs and simulated devices, and all share the "
       "CPU: leave it out, or set --device=cuda or --device=sim"},
      {!is_sim && (has_memory || settings.sim_async),
       absl::StrCat(settings.sim_async ? "--sim_async" : "--device_memory",
                    " is for simulated devices: set --device=sim, not ",
                    settings.device)},
      {!settings.sim_async && (delays || has_delay_seed),
       "--sim_delay_us and --sim_delay_seed need --sim_async"},
      {has_delay_seed && !delays,
       absl::StrCat("--sim_delay_seed=", settings.sim_delay_seed,
                    " is of --sim_delay_us, which is 0: give both")},
  });
}

absl::Status CheckOptimizer(const TrainOptions& options) {
  const TrainOptions usual;
  const SettingValues given = Differing(Describe(options), Describe(usual));
  const std::string adams =
      FirstSetting(given, {"amsgrad", "adam_beta1", "adam_beta2", "adam_eps"});
  const std::string muons =
      FirstSetting(given, {"muon_learning_rate", "muon_momentum",
                           "muon_nesterov", "muon_ns_steps", "muon_adjust_lr"});
  const bool is_sgd = options.optimizer == "sgd";
  const bool is_muon = options.optimizer == "muon";
  const std::string is_sgds = absl::StrCat(
      " is sgd's, but --optimizer=", options.optimizer, " was given");
  const bool in_steps = options.lr_schedule == "step";
  const bool is_wsd = options.lr_schedule == "wsd";
  const auto is_of = [&](const std::string& schedule) {
    return absl::StrCat(" is of --lr_schedule=", schedule,
                        ", but --lr_schedule=", options.lr_schedule,
                        " was given");
  };
  const bool exempts = !options.no_weight_decay_on.empty();
  const std::string no_regex = RegexError(options.no_weight_decay_on);
  const bool clips = options.clip_grad_norm > 0;
  return CheckRules({
      {is_sgd && !adams.empty(),
       absl::StrCat(adams,
                    " is for adam, adamw and muon, but --optimizer=sgd was "
                    "given")},
      {!is_muon && !muons.empty(),
       absl::StrCat(muons, " is muon's, but --optimizer=", options.optimizer,
                    " was given")},
      {options.muon_learning_rate.has_value() &&
           ResolvedLearningRate(options) == 0,
       absl::StrCat(
           "--muon_learning_rate=", options.muon_learning_rate.value_or(0),
           " goes by the schedule of --learning_rate, which is 0: leave it "
           "out, or give both")},
      {is_sgd && options.nesterov && options.momentum == 0,
       "--nesterov needs a momentum, but --momentum=0 was given"},
      {!is_sgd && options.momentum != usual.momentum,
       absl::StrCat("--momentum=", options.momentum, is_sgds)},
      {!is_sgd && options.nesterov, absl::StrCat("--nesterov", is_sgds)},
      // What the steps of --lr_schedule=step are made of.
      {in_steps && options.lr_step_size == 0,
       "--lr_schedule=step needs --lr_step_size=STEPS, the steps between two "
       "decays"},
      {!in_steps && options.lr_step_size > 0,
       absl::StrCat("--lr_step_size=", options.lr_step_size, is_of("step"))},
      {!in_steps && options.lr_gamma != usual.lr_gamma,
       absl::StrCat("--lr_gamma=", options.lr_gamma, is_of("step"))},
      {is_wsd && options.lr_wsd_decay_steps == 0,
       "--lr_schedule=wsd needs --lr_wsd_decay_steps=STEPS, the last ones, "
       "over which the learning rate falls"},
      {!is_wsd && options.lr_wsd_decay_steps > 0,
       absl::StrCat("--lr_wsd_decay_steps=", options.lr_wsd_decay_steps,
                    is_of("wsd"))},
      {!is_wsd && options.lr_wsd_decay_style != usual.lr_wsd_decay_style,
       absl::StrCat("--lr_wsd_decay_style=", options.lr_wsd_decay_style,
                    is_of("wsd"))},
      {options.min_learning_rate > 0 && !FallsToTheEnd(options.lr_schedule),
       absl::StrCat("--min_learning_rate=", options.min_learning_rate,
                    " is where --lr_schedule=cosine, linear and wsd end, but "
                    "--lr_schedule=",
                    options.lr_schedule, " was given")},
      {options.min_learning_rate > ResolvedLearningRate(options),
       absl::StrCat("--min_learning_rate=", options.min_learning_rate,
                    " is greater than the peak, --learning_rate=",
                    ResolvedLearningRate(options))},
      {exempts && options.weight_decay == 0,
       absl::StrCat("--no_weight_decay_on=", options.no_weight_decay_on,
                    " makes exceptions from --weight_decay, which is 0: give "
                    "both")},
      {exempts && !no_regex.empty(),
       absl::StrCat("--no_weight_decay_on=", options.no_weight_decay_on,
                    ": not a regular expression (ECMAScript's): ", no_regex)},
      {!(options.clip_grad_norm_type > 0),
       absl::StrCat("--clip_grad_norm_type=", options.clip_grad_norm_type,
                    ": must be greater than 0, such as 2, 1 or inf")},
      {!clips && options.clip_grad_norm_type != 2,
       absl::StrCat("--clip_grad_norm_type=", options.clip_grad_norm_type,
                    " says which norm is clipped: give --clip_grad_norm=NORM "
                    "as well")},
      {!clips && options.error_if_nonfinite,
       "--error_if_nonfinite looks at the norm that is clipped: give "
       "--clip_grad_norm=NORM as well"},
  });
}

absl::Status CheckModel(const TrainOptions& options) {
  const bool in_chunks = options.loss_chunk != 0;
  const bool in_parts = options.vocab_parallel != 1;
  const bool replicates = options.strategy == "data_parallel";
  const auto parts = [&](const std::string& why) {
    return absl::StrCat("--vocab_parallel=", options.vocab_parallel, why,
                        ": leave one out");
  };
  const SelectiveCheckpointing selective =
      RequestedSelectiveCheckpointing(options);
  const absl::Status groups = CheckpointedGroups({}, selective).status();
  const std::string measured =
      options.pipeline.balance == "profile"    ? "--balance=profile"
      : MeasuresMicrobatches(options.pipeline) ? "--microbatches=auto"
                                               : "";
  const std::string of_logits =
      FirstSetting(Differing(Describe(options), Describe(TrainOptions())),
                   {"label_smoothing", "z_loss"});
  return CheckRules({
      {in_chunks && !of_logits.empty(),
       absl::StrCat("--loss_chunk=", options.loss_chunk,
                    " computes no logits for ", of_logits,
                    " to look at: leave one out")},
      {in_chunks && replicates,
       absl::StrCat("--loss_chunk=", options.loss_chunk,
                    " hands the head's weight to the loss, but "
                    "--strategy=data_parallel gathers samples from its devices "
                    "alone: use --strategy=ddp with a rank a device")},
      {in_parts && !of_logits.empty(),
       parts(absl::StrCat(" computes no logits of the whole vocabulary for ",
                          of_logits, " to look at"))},
      {in_parts && replicates, parts(" needs a pipeline, or one device, not "
                                     "--strategy=data_parallel")},
      {in_parts && ParameterServerCount(options) > 0,
       parts(absl::StrCat(" is for replicas that have no servers, but "
                          "--strategy=",
                          options.strategy, " was given"))},
      {!groups.ok(), absl::StrCat("--", groups.message())},
      {selective.is_on() && !measured.empty(),
       absl::StrCat(
           selective.layers.empty()
               ? absl::StrCat("--checkpoint_every=", selective.every)
               : absl::StrCat("--checkpoint_layers=", selective.layers),
           " drops what ", measured,
           " would plan with, which knows of --checkpoint_activations alone: "
           "leave one out")},
  });
}

absl::Status CheckAdapters(const TrainOptions& options) {
  const std::optional<LoraOptions> lora = RequestedLora(options);
  const std::string of_lora =
      FirstSetting(Differing(Describe(options), Describe(TrainOptions())),
                   {"lora_alpha", "lora_on", "lora_dropout"});
  const absl::Status values = lora ? CheckLora(*lora) : absl::OkStatus();
  return CheckRules({
      {!lora && !of_lora.empty(),
       absl::StrCat(of_lora,
                    " is about adapters, of which there are none: give "
                    "--lora_rank=RANK as well")},
      {!values.ok(), absl::StrCat("--", values.message())},
  });
}

absl::Status CheckEvaluation(const TrainOptions& options) {
  const SettingValues given =
      Differing(Describe(options), Describe(TrainOptions()));
  const std::string flag = FirstSetting(
      given,
      {"eval_every", "keep_best", "early_stopping_patience", "sample_every"});
  const std::string of_samples =
      FirstSetting(given, {"prompt", "max_new_tokens", "temperature"});
  const bool samples = options.sample_every > 0;
  const int64_t patience = options.early_stopping_patience;
  return CheckRules({
      {!flag.empty() && options.eval_only,
       absl::StrCat(flag,
                    " is for a job that trains, but --eval_only was "
                    "given: leave one out")},
      {!flag.empty() && ParameterServerCount(options) > 0,
       absl::StrCat(flag,
                    " needs ranks that take their steps together, but "
                    "workers of --strategy=parameter_server do not: "
                    "leave it out; epochs end with an evaluation")},
      {options.eval_only && MeasuresMicrobatches(options.pipeline),
       "--microbatches=auto predicts a step of training, of which --eval_only "
       "has none: leave one out"},
      {patience > 0 && options.replace_replicas > 0 && options.save_dir.empty(),
       absl::StrCat("--early_stopping_patience=", patience,
                    " needs --save_dir with --replace_replicas: what "
                    "evaluations came to is kept there")},
      {!samples && !of_samples.empty(),
       absl::StrCat(of_samples,
                    " is for --sample_every=STEPS: give that, too, or leave it "
                    "out")},
      {samples && options.prompt.empty(),
       "--prompt is empty: --sample_every has nothing to continue"},
  });
}

absl::Status CheckTracing(const TrainOptions& options) {
  const bool traces = !options.trace_file.empty();
  TANDEM_RETURN_IF_ERROR(CheckRules({
      {!traces && options.trace_steps != TrainOptions().trace_steps,
       absl::StrCat("--trace_steps=",
                    ToText(setting::StepRange::ToValue(options.trace_steps)),
                    " says which steps --trace_file shows: give both")},
      {traces && options.eval_only,
       absl::StrCat("--trace_file=", options.trace_file,
                    " shows steps of training, of which --eval_only has none: "
                    "leave one out")},
  }));
  return options.max_steps > 0
             ? CheckStepsToTrace(options, /*done=*/0, options.max_steps)
             : absl::OkStatus();
}

absl::Status CheckStepsToTrace(const TrainOptions& options, int64_t done,
                               int64_t in_all) {
  const auto [first, last] = options.trace_steps;
  if (options.trace_file.empty() || (first > done && last <= in_all)) {
    return absl::OkStatus();
  }
  const int64_t step = first <= done ? first : last;
  return absl::InvalidArgumentError(absl::StrCat(
      "--trace_file=", options.trace_file, " would never be written: step ",
      step, " (--trace_steps) ",
      step <= done
          ? absl::StrCat("is done, as ", done, " are")
          : absl::StrCat("does not come, as the job ends after ", in_all),
      in_all > done
          ? absl::StrCat("; it has ", done + 1, " to ", in_all, " before it")
          : "; it has none before it"));
}

absl::Status CheckTensorBoard(const TrainOptions& options) {
  const bool has_histograms = options.histograms_every > 0;
  const auto histograms = [&](const std::string& why) {
    return absl::StrCat("--histograms_every=", options.histograms_every, why);
  };
  const bool has_images = options.misclassified_images > 0;
  const auto images = [&](const std::string& why) {
    return absl::StrCat("--misclassified_images=", options.misclassified_images,
                        why);
  };
  return CheckRules({
      {has_histograms && options.tensorboard_dir.empty(),
       histograms(" writes for TensorBoard: give --tensorboard_dir=FOLDER as "
                  "well")},
      {has_histograms && options.eval_only,
       histograms(" shows steps of training, of which --eval_only has none: "
                  "leave one out")},
      {has_histograms && ParameterServerCount(options) > 0,
       histograms(absl::StrCat(" shows what rank 0 has of the model, which is "
                               "nothing with --strategy=",
                               options.strategy, ": leave one out"))},
      {has_images && options.tensorboard_dir.empty(),
       images(" writes for TensorBoard: give --tensorboard_dir=FOLDER as "
              "well")},
      {has_images && ParameterServerCount(options) > 0,
       images(absl::StrCat(" gathers the model on rank 0, for which workers of "
                           "--strategy=",
                           options.strategy, " do not meet: leave one out"))},
  });
}

absl::Status CheckFiles(const TrainOptions& options) {
  const std::string& weights = options.init_from;
  const std::string& folder = options.save_dir;
  const std::string& prometheus = options.prometheus_file;
  const bool resumes = !options.resume.empty();
  const bool allows =
      !options.allow_missing.empty() || !options.allow_unexpected.empty();
  const std::string saving = FirstForCheckpoints(options);
  return CheckRules({
      // A folder with checkpoints in it is taken for one of them next time, not
      // for the weights that lie beside them.
      {!weights.empty() && !folder.empty() && !options.eval_only &&
           AreSame(weights, folder),
       absl::StrCat("--save_dir=", folder,
                    " is the folder of --init_from=", weights,
                    ": the next job would take its checkpoints for the weights "
                    "to begin with: give another --save_dir")},
      {options.eval_only && !resumes && weights.empty(),
       "--eval_only evaluates a checkpoint: name it with --resume=PATH, or "
       "weights with --init_from=PATH"},
      {allows && (weights.empty() || resumes),
       "--allow_missing and --allow_unexpected are for --init_from=PATH, "
       "without --resume, whose checkpoint is whole: leave them out"},
      {!options.report.empty() && options.report == options.metrics_file,
       absl::StrCat("--report=", options.report,
                    " and --metrics_file are the same file: the page would "
                    "take the place of the events: name two")},
      {!prometheus.empty() && !absl::EndsWith(prometheus, ".prom"),
       absl::StrCat("--prometheus_file=", prometheus,
                    ": must end in .prom, as node_exporter's textfile "
                    "collector reads no other files")},
      {!prometheus.empty() && AreSame(prometheus, options.metrics_file),
       absl::StrCat("--prometheus_file=", prometheus,
                    " is --metrics_file as well: give each a file of its own")},
      {folder.empty() && !saving.empty(),
       absl::StrCat(saving,
                    " was given, but --save_dir is empty: name a folder for "
                    "checkpoints")},
      {options.keep_every != 0 && options.keep_last == 0,
       absl::StrCat("--keep_every=", options.keep_every,
                    " was given, but without --keep_last all checkpoints are "
                    "kept: give both, or neither")},
  });
}

}  // namespace tandem
