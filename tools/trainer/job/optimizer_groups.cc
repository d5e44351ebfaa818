#include "tools/trainer/job/optimizer_groups.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/meta/shapes.h"
#include "core/model/hidden_matrices.h"
#include "core/model/layer_list.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {
namespace {

// Group numbers: each optimizer has one, or, with --no_weight_decay_on, two,
// for what decays and for what is exempt.
constexpr int64_t kExempt = 1;
constexpr int64_t kGroupsWithExempt = 2;

bool IsExempt(int64_t group) { return group % kGroupsWithExempt == kExempt; }

// Adam and AdamW have the same options.
template <typename Options>
Options MakeAdamOptions(const TrainOptions& options, double weight_decay) {
  Options adam;
  adam.beta1 = options.adam_beta1;
  adam.beta2 = options.adam_beta2;
  adam.eps = options.adam_eps;
  adam.weight_decay = weight_decay;
  adam.amsgrad = options.amsgrad;
  return adam;
}

MuonAdjustment Adjustment(const std::string& name) {
  if (name == "original") return MuonAdjustment::kOriginal;
  return name == "match_rms_adamw" ? MuonAdjustment::kMatchRmsAdamW
                                   : MuonAdjustment::kSpectralUnclamped;
}

MuonOptions MakeMuonOptions(const TrainOptions& options, double weight_decay) {
  MuonOptions muon;
  muon.momentum = options.muon_momentum;
  muon.weight_decay = weight_decay;
  muon.nesterov = options.muon_nesterov;
  muon.ns_steps = options.muon_ns_steps;
  muon.adjust_lr = Adjustment(options.muon_adjust_lr);
  if (options.muon_learning_rate.has_value()) {
    muon.learning_rate_factor =
        *options.muon_learning_rate / ResolvedLearningRate(options);
  }
  return muon;
}

// The optimizers that share the parameters among them, the first one's first.
std::vector<OptimizerOptions> RequestedOptimizers(const TrainOptions& options,
                                                  double weight_decay) {
  if (options.optimizer == "sgd") {
    SgdOptions sgd;
    sgd.momentum = options.momentum;
    sgd.nesterov = options.nesterov;
    sgd.weight_decay = weight_decay;
    return {sgd};
  }
  if (options.optimizer == "adam") {
    return {MakeAdamOptions<AdamOptions>(options, weight_decay)};
  }
  const auto adamw = MakeAdamOptions<AdamWOptions>(options, weight_decay);
  if (options.optimizer == "adamw") return {adamw};
  return {MakeMuonOptions(options, weight_decay), adamw};
}

std::string WholeName(const std::string& name, const RowParts& parts) {
  const auto part = FindPart(name, parts);
  return part.has_value() ? part->whole : name;
}

// Layers that cannot be made without values are made with them.
absl::StatusOr<LayerList> MakeOutline(const LayerSpecs& specs) {
  {
    const MetaScope no_values;
    absl::StatusOr<LayerList> layers = MakeModelLayers(specs, /*seed=*/0);
    if (layers.ok()) return layers;
  }
  return MakeModelLayers(specs, /*seed=*/0);
}

// The matrices of hidden layers, of which parts of a head are none.
absl::StatusOr<std::set<std::string>> MuonsMatrices(const TrainOptions& options,
                                                    const LayerList& layers,
                                                    const RowParts& parts) {
  std::set<std::string> matrices = HiddenMatrices(layers);
  for (const auto& each : parts) matrices.erase(each.first);
  if (!matrices.empty()) return matrices;
  return absl::InvalidArgumentError(absl::StrCat(
      "--optimizer=muon is for matrices of hidden layers, of which --model=",
      options.model, " has none: give --optimizer=adamw"));
}

// Each weight counts once, whatever names or parts it has.
std::string DescribeMuon(const LayerList& layers, const RowParts& parts,
                         const std::set<std::string>& matrices) {
  std::set<std::string> all, muons;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    const bool is_first = seen.insert(parameter.unsafeGetTensorImpl()).second;
    if (!is_first || !parameter.requires_grad()) continue;
    all.insert(WholeName(name, parts));
    if (matrices.count(name) > 0) muons.insert(name);
  }
  return absl::StrCat("muon ", muons.size(), " of ", all.size(),
                      " parameters, adamw the rest");
}

// The optimizers of groups 0, 1, ...
std::vector<OptimizerOptions> GroupOptimizers(const TrainOptions& options) {
  const std::vector<OptimizerOptions> decaying =
      RequestedOptimizers(options, options.weight_decay);
  if (options.no_weight_decay_on.empty()) return decaying;
  const std::vector<OptimizerOptions> exempt = RequestedOptimizers(options, 0);
  std::vector<OptimizerOptions> all;
  for (size_t i = 0; i < decaying.size(); ++i) {
    all.push_back(decaying[i]);
    all.push_back(exempt[i]);
  }
  return all;
}

// `matrices`: of the first optimizer, where there are two; else null.
OptimizerGroup GroupByName(const TrainOptions& options, const RowParts& parts,
                           std::optional<std::set<std::string>> matrices) {
  return [has_exempt = !options.no_weight_decay_on.empty(),
          pattern = std::regex(options.no_weight_decay_on), parts,
          matrices = std::move(matrices)](const std::string& name) -> int64_t {
    const int64_t optimizer = matrices && matrices->count(name) == 0 ? 1 : 0;
    if (!has_exempt) return optimizer;
    const bool is_exempt = std::regex_search(WholeName(name, parts), pattern);
    return optimizer * kGroupsWithExempt + (is_exempt ? kExempt : 0);
  };
}

// Lines "1 NAME" of what is exempt, "0 NAME" of the rest.
std::string Lines(const Strategy& strategy, const RowParts& parts) {
  std::string lines;
  for (const auto& [name, group] : strategy.OptimizerGroups()) {
    absl::StrAppend(&lines, IsExempt(group) ? 1 : 0, " ",
                    WholeName(name, parts), "\n");
  }
  return lines;
}

// Whether each weight is exempt, of all ranks.
std::map<std::string, bool> ExemptIn(const std::vector<std::string>& lines) {
  std::map<std::string, bool> exempt;
  for (const std::string& rank : lines) {
    for (const absl::string_view line :
         absl::StrSplit(rank, '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> fields =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      exempt[fields.second] |= fields.first == "1";
    }
  }
  return exempt;
}

absl::StatusOr<std::string> DescribeExempt(
    const TrainOptions& options, const std::map<std::string, bool>& exempt) {
  const auto count =
      std::count_if(exempt.begin(), exempt.end(),
                    [](const auto& each) { return each.second; });
  if (count > 0) {
    return absl::StrCat(count, " of ", exempt.size(), " parameters");
  }
  std::vector<std::string> names;
  for (const auto& each : exempt) names.push_back(each.first);
  return absl::InvalidArgumentError(
      absl::StrCat("--no_weight_decay_on=", options.no_weight_decay_on,
                   " matches no parameter of --model=", options.model,
                   ", which trains ", ShortList(names)));
}

}  // namespace

absl::StatusOr<OptimizerGroups> MakeOptimizerGroups(const TrainOptions& options,
                                                    const LayerSpecs& layers,
                                                    const RowParts& parts) {
  OptimizerGroups groups;
  const std::vector<OptimizerOptions> all = GroupOptimizers(options);
  groups.update.optimizer = all.front();
  groups.update.further_optimizers.assign(all.begin() + 1, all.end());
  if (all.size() == 1) return groups;
  std::optional<std::set<std::string>> matrices;
  if (options.optimizer == "muon") {
    TANDEM_ASSIGN_OR_RETURN(const LayerList outline, MakeOutline(layers));
    TANDEM_ASSIGN_OR_RETURN(matrices, MuonsMatrices(options, outline, parts));
    groups.description = DescribeMuon(outline, parts, *matrices);
  }
  groups.update.optimizer_group =
      GroupByName(options, parts, std::move(matrices));
  return groups;
}

// No rank need have all parameters.
absl::StatusOr<std::string> DescribeExempt(const TrainOptions& options,
                                           const Strategy& strategy,
                                           const RowParts& parts,
                                           Communicator& world) {
  if (options.no_weight_decay_on.empty()) return std::string();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(Lines(strategy, parts), [] {
                            return "which parameters decay";
                          }));
  return DescribeExempt(options, ExemptIn(all));
}

absl::StatusOr<std::string> DescribeExempt(
    const TrainOptions& options, const OptimizerGroup& group,
    const std::vector<std::string>& parameters, const RowParts& parts) {
  if (options.no_weight_decay_on.empty()) return std::string();
  std::map<std::string, bool> exempt;
  for (const std::string& each : parameters) {
    exempt[WholeName(each, parts)] |= IsExempt(group(each));
  }
  return DescribeExempt(options, exempt);
}

}  // namespace tandem
