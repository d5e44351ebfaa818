#include "tools/trainer/job/optimizer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <regex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/some_of.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// Both kinds have the same.
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

constexpr int64_t kExempt = 1;

std::string WholeName(const std::string& name, const RowParts& parts) {
  const auto part = FindPart(name, parts);
  return part.has_value() ? part->whole : name;
}

// Lines "GROUP NAME".
std::string Lines(const Strategy& strategy, const RowParts& parts) {
  std::string lines;
  for (const auto& [name, group] : strategy.OptimizerGroups()) {
    absl::StrAppend(&lines, group, " ", WholeName(name, parts), "\n");
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
      exempt[fields.second] |= fields.first == absl::StrCat(kExempt);
    }
  }
  return exempt;
}

}  // namespace

OptimizerOptions OptimizerOptionsOf(const TrainOptions& options,
                                    double weight_decay) {
  if (options.optimizer == "sgd") {
    SgdOptions sgd;
    sgd.momentum = options.momentum;
    sgd.nesterov = options.nesterov;
    sgd.weight_decay = weight_decay;
    return sgd;
  }
  if (options.optimizer == "adam") {
    return MakeAdamOptions<AdamOptions>(options, weight_decay);
  }
  return MakeAdamOptions<AdamWOptions>(options, weight_decay);
}

DecayGroups DecayGroupsOf(const TrainOptions& options, const RowParts& parts) {
  if (options.no_weight_decay_on.empty()) return DecayGroups();
  const auto group = [pattern = std::regex(options.no_weight_decay_on),
                      parts](const std::string& name) -> int64_t {
    return std::regex_search(WholeName(name, parts), pattern) ? kExempt : 0;
  };
  return {group, {OptimizerOptionsOf(options, 0)}};
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
  const std::map<std::string, bool> exempt = ExemptIn(all);
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
                   ", which trains ", SomeOf(names)));
}

}  // namespace tandem
