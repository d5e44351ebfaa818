#include "parallel/strategy/capture_checks.h"

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// A step's forward and backward, of one replica.
std::string WhyNotComputed(const MeshStrategyOptions& options,
                           const CaptureFacts& facts) {
  if (options.reproducible) {
    return "reproducible steps add up statistics and gradients on the host's "
           "word";
  }
  if (facts.records_statistics) {
    return "the statistics of normalisation are recorded microbatch by "
           "microbatch";
  }
  if (facts.loss_has_weight) {
    return "the loss has a weight, which the host computes of each batch";
  }
  return "";
}

std::string WhyNotAlone(const MeshStrategyOptions& options,
                        const CaptureFacts& facts) {
  if (options.clip_norm > 0 && !facts.clips_on_device) {
    return "the host reads the norm by which gradients are clipped";
  }
  return WhyNotComputed(options, facts);
}

// What layers do with other replicas.
std::string WhyNotBesideOthers(const MeshStrategyOptions& options) {
  if (options.ddp.find_unused_parameters) {
    return "replicas tell each other in each step which parameters were used "
           "(find_unused_parameters)";
  }
  if (options.sync_batch_norm) {
    return "layers exchange statistics within a step (sync_batch_norm)";
  }
  return "";
}

std::string WhyNotInParts(const MeshStrategyOptions& options) {
  if (options.schedule.microbatches < 3) {
    return absl::StrCat(
        "a step has ", options.schedule.microbatches,
        options.schedule.microbatches == 1 ? " microbatch" : " microbatches",
        ", and the first and the last one are not captured");
  }
  if (options.pipeline.checkpointing != ActivationCheckpointing::kNever ||
      options.pipeline.selective.is_on()) {
    return "activations are computed again (activation checkpointing)";
  }
  if (options.pipeline.defers_statistics) {
    return "the statistics of normalisation are gathered microbatch by "
           "microbatch";
  }
  if (options.weight_gradient_batch > 1) {
    return "gradients of weights are computed of several microbatches at once "
           "(weight_gradient_batch)";
  }
  return "";
}

std::string WhyNotTogether(const MeshStrategyOptions& options,
                           const CaptureFacts& facts) {
  if (!facts.exchanges_on_streams) {
    return "replicas exchange through the host's memory, not on streams (NCCL)";
  }
  if (options.make_hook || options.ddp.mixed_precision.reduce_dtype) {
    return "a communication hook works on the host, bucket by bucket";
  }
  if (options.averaging.has_value()) {
    return "replicas train apart and average parameters now and then";
  }
  if (facts.shares_optimizer) return "replicas share the optimizer's work";
  return WhyNotBesideOthers(options);
}

}  // namespace

std::string WhyNotCaptured(const MeshStrategyOptions& options,
                           const CaptureFacts& facts) {
  if (!facts.has_graphs.ok()) return std::string(facts.has_graphs.message());
  const std::string alone = WhyNotAlone(options, facts);
  if (!alone.empty() || facts.replicas == 1) return alone;
  return WhyNotTogether(options, facts);
}

std::string WhyMicrobatchesAreNotCaptured(const MeshStrategyOptions& options,
                                          const CaptureFacts& facts) {
  if (!facts.has_graphs.ok()) return std::string(facts.has_graphs.message());
  std::string why = WhyNotInParts(options);
  if (why.empty()) why = WhyNotComputed(options, facts);
  if (!why.empty() || facts.replicas == 1) return why;
  return WhyNotBesideOthers(options);
}

}  // namespace tandem
