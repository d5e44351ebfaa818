#include "tools/trainer/job/model.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/mesh/mesh.h"
#include "core/meta/flops.h"
#include "core/model/axis/loopback_axis_group.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/batch.h"
#include "models/channels_last.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "models/hugging_face/model_config.h"
#include "models/lora/lora.h"
#include "models/registry.h"
#include "models/tensor_parallel_loss.h"
#include "models/vocab_parallel.h"

namespace tandem {
namespace {

// A data set that suits the model, where the given one holds the other kind of
// samples; empty: that would be no remedy.
std::string FittingDataset(const ModelOptions& model) {
  // A user's maker is shown the data's samples alone.
  if (absl::c_linear_search(RegisteredModels(), model.name)) return "";
  ModelOptions other = model;
  other.tokens = !model.tokens;
  other.input_shape =
      other.tokens ? std::vector<int64_t>{64} : std::vector<int64_t>{1, 28, 28};
  if (!MakeModel(other).ok()) return "";
  return other.tokens ? "synthetic_tokens" : "fashion_mnist";
}

constexpr char kHead[] = "lm_head";  // GPTs' and Llamas'

absl::StatusOr<VocabParallelModel> InParts(const TrainOptions& options,
                                           const LayerSpecs& specs) {
  VocabParallelOptions division;
  division.parts = options.vocab_parallel;
  if (options.loss_chunk > 0) division.chunk = options.loss_chunk;
  auto model = DivideVocabulary(specs, division);
  if (model.ok()) return model;
  return Annotate(model.status(),
                  absl::StrCat("--vocab_parallel=", options.vocab_parallel));
}

// What is wrong with adapters is said of flags.
absl::Status OfFlags(const absl::Status& status) {
  if (!absl::StartsWith(status.message(), "lora_")) return status;
  return absl::Status(status.code(), absl::StrCat("--", status.message()));
}

// A head in parts is no linear layer, and an adapter of it would be left out.
absl::Status CheckHeadHasNone(const TrainOptions& options,
                              const std::vector<LoraTarget>& targets) {
  for (const LoraTarget& each : targets) {
    if (each.module != kHead || options.vocab_parallel == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--lora_on=", options.lora_on, " matches ", each.weight,
                     ", which --vocab_parallel=", options.vocab_parallel,
                     " divides, without an adapter: leave one out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerSpecs> ForLoss(const TrainOptions& options,
                                   bool is_transformer, LayerSpecs specs) {
  const bool in_parts = options.vocab_parallel > 1;
  if (options.loss_chunk == 0 && !in_parts) return specs;
  if (!is_transformer) {
    return absl::InvalidArgumentError(absl::StrCat(
        in_parts ? absl::StrCat("--vocab_parallel=", options.vocab_parallel)
                 : absl::StrCat("--loss_chunk=", options.loss_chunk),
        " is for GPTs and Llamas, but --model=", options.model, " was given"));
  }
  if (!in_parts) return WithoutLogits(std::move(specs));
  TANDEM_ASSIGN_OR_RETURN(VocabParallelModel model, InParts(options, specs));
  return std::move(model.specs);
}

// With what config.json leaves to the job.
absl::StatusOr<TransformerOptions> ToTrain(TransformerOptions model,
                                           const TrainOptions& options) {
  std::visit([&](auto& own) { own.document_masks = options.document_masks; },
             model);
  if (options.dropout == 0) return model;
  auto* const gpt = std::get_if<GptOptions>(&model);
  if (gpt == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--init_from=", options.init_from,
                     " is a Llama, which has no dropout, "
                     "but --dropout=",
                     options.dropout, " was given: leave it out"));
  }
  gpt->dropout = options.dropout;
  return model;
}

absl::StatusOr<LayerSpecs> LayersOfFolder(const TransformerOptions& model,
                                          const TrainOptions& options,
                                          const Dataset& data) {
  const std::vector<int64_t> shape = data.input_shape();
  if (data.tokens() && shape.size() == 1 && shape[0] <= ContextLength(model) &&
      data.classes() <= VocabularySize(model)) {
    TANDEM_ASSIGN_OR_RETURN(const TransformerOptions trained,
                            ToTrain(model, options));
    return LayersOf(trained);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--init_from=", options.init_from,
      ": its model takes token numbers [tokens], up to ", ContextLength(model),
      " of them (--context), from a vocabulary of up to ",
      VocabularySize(model), " (--vocabulary), but the data's inputs are [",
      absl::StrJoin(shape, ", "), "] with ", data.classes(), " classes"));
}

// The layers without adapters.
absl::StatusOr<LayerSpecs> PlainLayers(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data) {
  if (transformer.has_value() && transformer->from_folder) {
    TANDEM_ASSIGN_OR_RETURN(LayerSpecs specs,
                            LayersOfFolder(transformer->model, options, data));
    return ForLoss(options, /*is_transformer=*/true, std::move(specs));
  }
  ModelOptions model;
  model.name = options.model;
  model.input_shape = data.input_shape();
  model.classes = data.classes();
  model.tokens = data.tokens();
  model.sizes = RequestedSizes(options);
  model.document_masks = options.document_masks;
  model.dropout = options.dropout;
  absl::StatusOr<LayerSpecs> specs = MakeModel(model);
  if (specs.ok()) {
    if (options.devices.channels_last) {
      specs = InChannelsLast(*std::move(specs));
    }
    return ForLoss(options, TakesTokens(options.model), *std::move(specs));
  }
  const std::string fitting = FittingDataset(model);
  if (fitting.empty()) return specs;
  return absl::Status(
      specs.status().code(),
      absl::StrCat(specs.status().message(), ": try --dataset=", fitting));
}

// With the whole head, whatever the loss does with it.
absl::StatusOr<LayerSpecs> WholeLayers(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data) {
  TrainOptions whole = options;
  whole.vocab_parallel = 1;
  whole.loss_chunk = 0;
  return PlainLayers(whole, transformer, data);
}

}  // namespace

absl::Status CheckCanBeShared(const TrainOptions& options) {
  const bool is_known =
      absl::StartsWith(options.model, "vit") || TakesTokens(options.model) ||
      absl::c_linear_search(RegisteredModels(), options.model);
  if (options.pipeline.tensor == 1 || is_known || !options.init_from.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--tensor=", options.pipeline.tensor,
      " divides GPTs, Llamas and ViTs among ranks, but --model=", options.model,
      " was given: leave --tensor out, and more ranks have more replicas"));
}

absl::StatusOr<LayerSpecs> JobLayers(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data) {
  const std::optional<LoraOptions> lora = RequestedLora(options);
  if (!lora) return PlainLayers(options, transformer, data);
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs plain,
                          PlainLayers(options, transformer, data));
  TANDEM_RETURN_IF_ERROR(JobAdapters(options, transformer, data).status());
  auto adapted = WithLora(std::move(plain), *lora);
  return adapted.ok() ? adapted : OfFlags(adapted.status());
}

absl::StatusOr<std::optional<LoraRecord>> JobAdapters(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data) {
  const std::optional<LoraOptions> lora = RequestedLora(options);
  if (!lora) return std::nullopt;
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs whole,
                          WholeLayers(options, transformer, data));
  const auto targets = LoraTargets(whole, *lora);
  TANDEM_RETURN_IF_ERROR(OfFlags(targets.status()));
  TANDEM_RETURN_IF_ERROR(CheckHeadHasNone(options, *targets));
  return MakeLoraRecord(*lora, *targets, options.init_from);
}

absl::StatusOr<RowParts> ModelRowParts(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data) {
  if (options.vocab_parallel == 1) return RowParts();
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs whole,
                          WholeLayers(options, transformer, data));
  TANDEM_ASSIGN_OR_RETURN(VocabParallelModel model, InParts(options, whole));
  return std::move(model.parts);
}

namespace {

LossFunction TensorParallelLoss(const TrainOptions& options,
                                const Transformer& transformer,
                                const std::optional<int64_t>& ignored) {
  TensorParallelLossOptions loss;
  loss.classes = VocabularySize(transformer.model);
  loss.ignore_index = ignored;
  loss.label_smoothing = options.label_smoothing;
  loss.z_loss = options.z_loss;
  loss.chunk = options.loss_chunk;
  if (loss.chunk > 0) loss.head_weight = absl::StrCat(kHead, ".weight");
  return TensorParallelCrossEntropy(loss);
}

}  // namespace

LossFunction JobLoss(const TrainOptions& options,
                     const std::optional<Transformer>& transformer) {
  std::optional<int64_t> ignored;
  if (options.document_masks) ignored = kNoTarget;
  if (options.pipeline.tensor > 1 && transformer.has_value()) {
    return TensorParallelLoss(options, *transformer, ignored);
  }
  if (options.vocab_parallel > 1) {
    return VocabParallelCrossEntropy(kHead, options.vocab_parallel, ignored);
  }
  if (options.loss_chunk > 0) {
    return ChunkedCrossEntropy(absl::StrCat(kHead, ".weight"),
                               options.loss_chunk, ignored);
  }
  const LossFunction loss =
      SmoothedCrossEntropy(options.label_smoothing, ignored);
  return options.z_loss > 0 ? WithZLoss(loss, options.z_loss) : loss;
}

namespace {

std::shared_ptr<const TensorParallel> PlannedParallel(
    const PipelineSettings& settings) {
  if (settings.tensor == 1) return nullptr;
  auto parallel = std::make_shared<TensorParallel>();
  parallel->group =
      MakeLoopbackAxisGroup(std::string(kTensorAxis), settings.tensor);
  parallel->sequence_parallel = settings.sequence_parallel;
  return parallel;
}

}  // namespace

PlannedLayersScope::PlannedLayersScope(const PipelineSettings& settings)
    : scope_(std::make_unique<TensorParallelScope>(PlannedParallel(settings))) {
}

PlannedLayersScope::~PlannedLayersScope() = default;

namespace {

absl::StatusOr<double> Forward(const TrainOptions& options,
                               const std::optional<Transformer>& transformer,
                               const Dataset& data) {
  if (options.peak_tflops == 0 &&
      absl::c_linear_search(RegisteredModels(), options.model)) {
    return absl::UnimplementedError(
        "the model is this program's own: give --peak_tflops");
  }
  TrainOptions plain = options;
  plain.loss_chunk = 0;  // the loss would have the last product
  plain.vocab_parallel = 1;
  plain.devices.channels_last = false;
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs layers,
                          JobLayers(plain, transformer, data));
  return ForwardFlops(layers, data.input_shape(),
                      data.tokens() ? at::kLong : at::kFloat);
}

// FLOPs with weights that are trained: all, or adapters alone.
absl::StatusOr<double> TrainedForward(
    double forward, const TrainOptions& options,
    const std::optional<Transformer>& transformer, const Dataset& data) {
  if (options.lora_rank == 0) return forward;
  TrainOptions frozen = options;
  frozen.lora_rank = 0;
  TANDEM_ASSIGN_OR_RETURN(const double without,
                          Forward(frozen, transformer, data));
  return forward - without;
}

}  // namespace

JobFlops ModelFlops(const TrainOptions& options,
                    const std::optional<Transformer>& transformer,
                    const Dataset& data, int devices) {
  JobFlops flops;
  flops.peak_of_all = options.peak_tflops * 1e12 * devices;
  const absl::StatusOr<double> forward = Forward(options, transformer, data);
  const absl::StatusOr<double> trained =
      forward.ok() ? TrainedForward(*forward, options, transformer, data)
                   : forward;
  if (trained.ok()) {
    flops.forward = *forward;
    flops.trained = *trained;
  } else {
    flops.unknown = std::string(trained.status().message());
  }
  return flops;
}

}  // namespace tandem
