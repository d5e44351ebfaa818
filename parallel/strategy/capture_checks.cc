#include "parallel/strategy/capture_checks.h"

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// Of one replica.
std::string WhyNotAlone(const MeshStrategyOptions& options,
                        const CaptureFacts& facts) {
  if (options.schedule.devices() > 1 || options.schedule.stages > 1) {
    return absl::StrCat(
        "the model is cut into ", options.schedule.stages, " stages on ",
        options.schedule.devices(),
        options.schedule.devices() == 1 ? " device" : " devices",
        ", and a step is captured of a whole model");
  }
  if (options.scales_loss()) {
    return "the loss is scaled, and the host asks of each step whether its "
           "gradients are finite";
  }
  if (options.clip_norm > 0 && !facts.clips_on_device) {
    return "the host reads the norm by which gradients are clipped";
  }
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
  if (options.ddp.find_unused_parameters) {
    return "replicas tell each other in each step which parameters were used "
           "(find_unused_parameters)";
  }
  if (options.sync_batch_norm) {
    return "layers exchange statistics within a step (sync_batch_norm)";
  }
  return "";
}

}  // namespace

std::string WhyNotCaptured(const MeshStrategyOptions& options,
                           const CaptureFacts& facts) {
  if (!facts.has_graphs.ok()) return std::string(facts.has_graphs.message());
  const std::string alone = WhyNotAlone(options, facts);
  if (!alone.empty() || facts.replicas == 1) return alone;
  return WhyNotTogether(options, facts);
}

}  // namespace tandem
