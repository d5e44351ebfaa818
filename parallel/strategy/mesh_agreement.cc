#include "parallel/strategy/mesh_agreement.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/comm/group_agreement.h"
#include "parallel/schedule/values.h"
#include "parallel/strategy/stage/trait_checks.h"

namespace tandem {
namespace {

std::string Word(bool on) { return on ? "true" : "false"; }

// Every digit: what differs in the last one trains another model.
std::string Number(double value) { return absl::StrFormat("%.17g", value); }

struct OptimizerText {
  std::string operator()(const SgdOptions& sgd) const {
    return absl::StrCat("sgd with momentum ", Number(sgd.momentum),
                        ", dampening ", Number(sgd.dampening),
                        ", weight_decay ", Number(sgd.weight_decay),
                        ", nesterov ", Word(sgd.nesterov));
  }
  std::string operator()(const AdamOptions& adam) const {
    return absl::StrCat("adam", Betas(adam));
  }
  std::string operator()(const AdamWOptions& adamw) const {
    return absl::StrCat("adamw", Betas(adamw));
  }

 private:
  template <typename Options>
  static std::string Betas(const Options& options) {
    return absl::StrCat(" with beta1 ", Number(options.beta1), ", beta2 ",
                        Number(options.beta2), ", eps ", Number(options.eps),
                        ", weight_decay ", Number(options.weight_decay),
                        ", amsgrad ", Word(options.amsgrad));
  }
};

std::string Scaler(const UpdateOptions& options) {
  if (!options.scales_loss()) return "off";
  const GradScalerOptions& scaler = *options.grad_scaler;
  if (scaler.constant) {
    return absl::StrCat(Number(scaler.init_scale), " throughout");
  }
  return absl::StrCat("from ", Number(scaler.init_scale), ", times ",
                      Number(scaler.growth_factor), " after ",
                      scaler.growth_interval, " steps, times ",
                      Number(scaler.backoff_factor), " after a skipped one");
}

std::string LayersOf(const LayerSpecs& specs) {
  return absl::StrJoin(specs, ", ", [](std::string* out, const auto& layer) {
    absl::StrAppend(out, layer.name, " (", layer.type, ")");
  });
}

void AddTraining(const MeshStrategyOptions& options, NamedValues& values) {
  values["optimizer"] = absl::visit(OptimizerText(), options.optimizer);
  for (size_t i = 0; i < options.further_optimizers.size(); ++i) {
    values[absl::StrCat("further_optimizers[", i, "]")] =
        absl::visit(OptimizerText(), options.further_optimizers[i]);
  }
  values["optimizer_group"] = Word(options.optimizer_group != nullptr);
  values["clip_norm"] = Number(options.clip_norm);
  values["clip_norm_type"] = Number(options.clip_norm_type);
  values["error_if_nonfinite"] = Word(options.error_if_nonfinite);
  values["clip_value"] = Number(options.clip_value);
  values["grad_scaler"] = Scaler(options);
  values["seed"] = absl::StrCat(options.seed);
}

std::string Mib(const std::optional<double>& mib) {
  return mib.has_value() ? Number(*mib) : "unset";
}

std::string Outer(const MeshStrategyOptions& options) {
  const std::optional<OuterOptimizerOptions>& outer = options.averaging->outer;
  if (!outer.has_value()) return "";
  return absl::StrCat(", outer learning rate ", Number(outer->learning_rate),
                      " and momentum ", Number(outer->momentum));
}

void AddReplicas(const MeshStrategyOptions& options, NamedValues& values) {
  const DistributedDataParallelOptions& ddp = options.ddp;
  values["ddp.broadcast_buffers"] = Word(ddp.broadcast_buffers);
  values["ddp.init_sync"] = Word(ddp.init_sync);
  values["ddp.bucket_cap_mb"] = Mib(ddp.bucket_cap_mb);
  values["ddp.bucket_cap_mb_list"] = absl::StrJoin(
      ddp.bucket_cap_mb_list, ",",
      [](std::string* out, double mib) { absl::StrAppend(out, Number(mib)); });
  values["ddp.find_unused_parameters"] = Word(ddp.find_unused_parameters);
  values["ddp.static_graph"] = Word(ddp.static_graph);
  values["ddp.delay_all_reduce_named_params"] =
      absl::StrJoin(ddp.delay_all_reduce_named_params, ",");
  values["ddp.param_to_hook_all_reduce"] = ddp.param_to_hook_all_reduce;
  values["ddp.skip_all_reduce_unused_params"] =
      Word(ddp.skip_all_reduce_unused_params);
  values["ddp.parameters_to_ignore"] =
      absl::StrJoin(ddp.parameters_to_ignore, ",");
  values["ddp.mixed_precision"] = Describe(ddp.mixed_precision);
  values["shard_optimizer"] = Word(options.shard_optimizer);
  values["compares_replicas"] = Word(options.compares_replicas);
  values["updates_last"] = Word(options.updates_last);
  values["sync_batch_norm"] = Word(options.sync_batch_norm);
  values["make_hook"] = Word(options.make_hook != nullptr);
  values["averaging"] =
      options.averaging.has_value()
          ? absl::StrCat("every ", options.averaging->period, " steps after ",
                         options.averaging->warmup_steps, Outer(options))
          : "off";
}

}  // namespace

NamedValues MeshStrategyValues(const LayerSpecs& specs,
                               const LossFunction& loss,
                               const MeshStrategyOptions& options) {
  NamedValues values;
  for (const auto& [name, value] : ScheduleValues(options.schedule)) {
    values[absl::StrCat("schedule's ", name)] = value;
  }
  values["cuts"] = absl::StrJoin(options.cuts, ",");
  values["devices.size()"] = absl::StrCat(options.devices.size());
  values["microbatch_size"] = absl::StrCat(options.microbatch_size);
  values["uneven_batches"] = Word(options.uneven_batches);
  values["uneven_division"] =
      absl::StrCat(static_cast<int>(options.uneven_division));
  values["pipeline.checkpointing"] =
      absl::StrCat(static_cast<int>(options.pipeline.checkpointing));
  values["pipeline.selective.layers"] = options.pipeline.selective.layers;
  values["pipeline.selective.every"] =
      absl::StrCat(options.pipeline.selective.every);
  values["pipeline.defers_statistics"] =
      Word(options.pipeline.defers_statistics);
  values["weight_gradient_batch"] = absl::StrCat(options.weight_gradient_batch);
  values["reproducible"] = Word(options.reproducible);
  values["gradient_groups"] = absl::StrCat(options.gradient_groups);
  values["layers"] = LayersOf(specs);
  values["parameters' traits"] = absl::StrJoin(
      NamedTraits(specs), "; ", [](std::string* out, const auto& each) {
        absl::StrAppend(out, each.first, " ", Describe(each.second));
      });
  values["loss's outputs"] = absl::StrJoin(loss.names().outputs, ",");
  values["loss's targets"] = absl::StrJoin(loss.names().targets, ",");
  AddTraining(options, values);
  AddReplicas(options, values);
  return values;
}

absl::Status CheckSameOptions(const LayerSpecs& specs, const LossFunction& loss,
                              const MeshStrategyOptions& options,
                              Communicator* world) {
  if (world == nullptr || world->size() == 1) return absl::OkStatus();
  return AgreeInGroup(MeshStrategyValues(specs, loss, options),
                      "models and options", *world);
}

}  // namespace tandem
