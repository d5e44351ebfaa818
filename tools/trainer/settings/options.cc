// What a job's settings come to: each in its range, and what follows from
// several of them.

#include "tools/trainer/settings/options.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/registry.h"
#include "tools/trainer/settings/option_rules.h"

namespace tandem {
namespace {

constexpr int64_t kUsualBatchSize = 64;

}  // namespace

absl::Status Validate(const TrainOptions& options) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::range.Check(#name, SETTINGS.name));
#include "tools/trainer/settings/all_settings.def"
  TANDEM_RETURN_IF_ERROR(CheckDevices(options.devices));
  TANDEM_RETURN_IF_ERROR(CheckBatch(options));
  TANDEM_RETURN_IF_ERROR(
      Validate(options.pipeline, MakePipelineContext(options)));
  TANDEM_RETURN_IF_ERROR(CheckDdp(options.ddp));
  // How many replicas there are is known later, but for a pipeline.
  TANDEM_RETURN_IF_ERROR(
      CheckReplicas(options, options.strategy == "pipeline" ? 1 : 2));
  TANDEM_RETURN_IF_ERROR(CheckEvaluation(options));
  TANDEM_RETURN_IF_ERROR(CheckOptimizer(options));
  TANDEM_RETURN_IF_ERROR(CheckModel(options));
  TANDEM_RETURN_IF_ERROR(CheckAdapters(options));
  TANDEM_RETURN_IF_ERROR(CheckData(options));
  TANDEM_RETURN_IF_ERROR(CheckParameterServer(options));
  TANDEM_RETURN_IF_ERROR(CheckBackend(options));
  TANDEM_RETURN_IF_ERROR(CheckPrecision(options));
  TANDEM_RETURN_IF_ERROR(CheckParts(options));
  TANDEM_RETURN_IF_ERROR(CheckTracing(options));
  TANDEM_RETURN_IF_ERROR(CheckTensorBoard(options));
  TANDEM_RETURN_IF_ERROR(CheckReplacedReplicas(options));
  return CheckFiles(options);
}

ImageOptions RequestedImageOptions(const ImageSettings& settings) {
  return {settings.image_size, settings.image_resize, settings.augment,
          settings.image_mean, settings.image_std};
}

bool HasOuterOptimizer(const DdpSettings& settings) {
  return settings.outer_learning_rate != 1 || settings.outer_momentum != 0;
}

CommHook RequestedHook(const DdpSettings& settings) {
  const auto hook = ParseCommHook(settings.comm_hook);
  CHECK(hook.ok()) << hook.status();  // Validate has read it
  return *hook;
}

PipelineContext MakePipelineContext(const TrainOptions& options) {
  return {options.strategy, options.devices.devices_per_rank,
          ResolvedBatchSize(options)};
}

SelectiveCheckpointing RequestedSelectiveCheckpointing(
    const TrainOptions& options) {
  return {options.checkpoint_layers, options.checkpoint_every};
}

std::optional<LoraOptions> RequestedLora(const TrainOptions& options) {
  if (options.lora_rank == 0) return std::nullopt;
  LoraOptions lora;
  lora.rank = options.lora_rank;
  lora.alpha = options.lora_alpha;
  lora.on = options.lora_on;
  lora.dropout = options.lora_dropout;
  return lora;
}

int ParameterServerCount(const TrainOptions& options) {
  if (options.strategy != kParameterServer) return 0;
  return static_cast<int>(options.ddp.servers);
}

int64_t ResolvedContext(const TrainOptions& options) {
  if (!options.synthetic_shape.empty()) return options.synthetic_shape.front();
  return options.context > 0 ? options.context : DatasetOptions().context;
}

int64_t ResolvedBatchSize(const TrainOptions& options) {
  if (options.batch_size.has_value()) return *options.batch_size;
  return options.tokens_per_step > 0
             ? options.tokens_per_step / ResolvedContext(options)
             : kUsualBatchSize;
}

std::string BatchSizeAsGiven(const TrainOptions& options) {
  const int64_t samples = ResolvedBatchSize(options);
  if (options.tokens_per_step == 0) {
    return absl::StrCat("--batch_size=", samples);
  }
  return absl::StrCat("--tokens_per_step=", options.tokens_per_step, " (",
                      samples, samples == 1 ? " sample)" : " samples)");
}

absl::Status CheckTokensPerStep(const TrainOptions& options, int64_t replicas) {
  const int64_t tokens = options.tokens_per_step;
  const int64_t context = ResolvedContext(options);
  const int64_t rest = tokens % (context * replicas);
  if (rest == 0) return absl::OkStatus();
  const int64_t below = tokens - rest;
  return absl::InvalidArgumentError(absl::StrCat(
      "--tokens_per_step=", tokens, " does not divide by the ", context,
      " tokens of a sample",
      replicas > 1 ? absl::StrCat(" on each of ", replicas, " replicas") : "",
      ": take ", below > 0 ? absl::StrCat(below, " or ") : "",
      below + context * replicas));
}

int64_t AccumulationSteps(const TrainOptions& options, int64_t samples) {
  const int64_t size = options.pipeline.microbatch_size;
  if (size == 0) return options.ddp.gradient_accumulation_steps;
  return (samples + size - 1) / size;
}

double ResolvedLearningRate(const TrainOptions& options) {
  return options.learning_rate.value_or(options.optimizer == "sgd" ? 0.05
                                                                   : 0.001);
}

bool FallsToTheEnd(const std::string& lr_schedule) {
  return lr_schedule == "cosine" || lr_schedule == "linear" ||
         lr_schedule == "wsd";
}

bool MeasuresKernels(const TrainOptions& options) {
  return options.kernels == "measured" ||
         (options.kernels == "auto" && !options.pipeline.reproducible);
}

MixedPrecision RequestedPrecision(const TrainOptions& options) {
  MixedPrecision precision;
  const auto take = [](const std::string& name,
                       std::optional<c10::ScalarType>* dtype) {
    const auto known = PrecisionOfName(name);
    CHECK(known.ok()) << known.status();  // the table has checked it
    *dtype = *known;
  };
  take(options.dtype, &precision.param_dtype);
  take(options.reduce_dtype, &precision.reduce_dtype);
  take(options.buffer_dtype, &precision.buffer_dtype);
  return precision;
}

std::optional<GradScalerOptions> RequestedGradScaler(
    const TrainOptions& options) {
  GradScalerOptions scaler;
  if (RequestedPrecision(options).param_dtype == c10::kHalf) {
    scaler.init_scale = options.init_scale;
    scaler.growth_factor = options.growth_factor;
    scaler.backoff_factor = options.backoff_factor;
    scaler.growth_interval = options.growth_interval;
    return scaler;
  }
  if (!options.skip_nonfinite) return std::nullopt;
  scaler.init_scale = 1;
  scaler.constant = true;
  return scaler;
}

SettingValues Describe(const ImageSettings& settings) {
  return {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ToValue(settings.name)},
#include "tools/trainer/settings/image_settings.def"
  };
}

SettingValues Describe(const DdpSettings& settings) {
  return {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ToValue(settings.name)},
#include "tools/trainer/settings/ddp_settings.def"
  };
}

SettingValues Describe(const TrainOptions& given) {
  TrainOptions options = given;
  options.batch_size = ResolvedBatchSize(given);
  options.learning_rate = ResolvedLearningRate(given);
  return {
#define SETTING(kind, name, value, range, help) \
  {#name, setting::kind::ToValue(SETTINGS.name)},
#include "tools/trainer/settings/all_settings.def"
  };
}

}  // namespace tandem
