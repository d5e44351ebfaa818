#include "parallel/step/parts/step_parts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "core/base/status_macros.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/optimizer_rule.h"
#include "parallel/optim/update_options.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

constexpr const StepPartRow* kRows[] = {
    &kLossTermsRow,         // notes what the step comes to
    &kScoreRow,             // the same
    &kTiedWeightsRow,       // sums the copies' gradients
    &kLossScaleRow,         // unscales gradients, and has a verdict
    &kGradientNormRow,      // of unscaled gradients
    &kBatchSharesRow,       // options alone
    &kSyncBatchNormRow,     // within forward and backward
    &kReplicasRow,          // options alone
    &kStagesRow,            // options alone
    &kTensorParallelRow,    // within layers; options alone
    &kBuffersRow,           // made alike before parameters change
    &kOptimizerRow,         // changes them
    &kShardedOptimizerRow,  // sends those that were changed
    &kFullyShardedRow,      // frees what inference has gathered
    &kAveragingRow,         // takes the mean of those that were changed
    &kEmaRow,               // averages those that were changed over steps
    &kUpdatesLastRow,       // the last to wait for other ranks
    &kReproducibleRow,      // options alone
    &kTimesRow,             // takes a step when all else has been read of it
};

// Whether `value` is what `condition`, "=on|off" or ">1", asks for; "": any is.
bool Meets(const std::string& value, absl::string_view condition) {
  if (condition.empty()) return true;
  const absl::string_view bound = condition.substr(1);
  if (condition.front() == '=') {
    const std::vector<absl::string_view> words = absl::StrSplit(bound, '|');
    return absl::c_linear_search(words, value);
  }
  double given = 0, least = 0;
  return absl::SimpleAtod(value, &given) && absl::SimpleAtod(bound, &least) &&
         given > least;
}

// The name and value of `flag` where it is given so; null: it is not.
const NamedValues::value_type* Find(const NamedValues& given,
                                    absl::string_view flag) {
  const size_t end = std::min(flag.find_first_of("=>"), flag.size());
  const auto found = given.find(std::string(flag.substr(0, end)));
  if (found == given.end()) return nullptr;
  return Meets(found->second, flag.substr(end)) ? &*found : nullptr;
}

std::string AsGiven(const NamedValues::value_type& flag) {
  return absl::StrCat("--", flag.first, "=", flag.second);
}

bool SharesOptimizer(const MeshStrategyOptions& options, bool share_memory) {
  if (options.shard != Sharding::kAuto) return options.shard != Sharding::kOff;
  return share_memory &&
         MostStateNumbers(AllOptimizers(options)) >= kLeastStateNumbers &&
         ExcludesSharding(options).empty();
}

// How many numbers are kept for a parameter, by its name; null: as many for
// all.
std::function<int(const std::string&)> StatesByName(
    const UpdateOptions& options) {
  if (!options.optimizer_group) return nullptr;
  std::vector<int> states;
  for (const OptimizerOptions& each : AllOptimizers(options)) {
    states.push_back(StateNumbers(each));
  }
  return [states = std::move(states),
          group = options.optimizer_group](const std::string& name) {
    return states.at(static_cast<size_t>(group(name)));
  };
}

}  // namespace

absl::Span<const StepPartRow* const> StepPartRows() { return kRows; }

absl::StatusOr<StepPartList> MakeStepParts(MeshModel& model) {
  StepPartList parts;
  for (const StepPartRow* row : kRows) {
    if (row->make == nullptr) continue;
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<StepPart> part, row->make(model));
    if (part != nullptr) parts.push_back(std::move(part));
  }
  return parts;
}

void DescribeStepParts(const MeshStrategyOptions& options,
                       NamedValues& values) {
  for (const StepPartRow* row : kRows) {
    if (row->describe != nullptr) row->describe(options, values);
  }
}

const Exclusion* FirstGiven(absl::Span<const Exclusion> others,
                            const MeshStrategyOptions& options) {
  for (const Exclusion& each : others) {
    if (each.is_given != nullptr && each.is_given(options)) return &each;
  }
  return nullptr;
}

absl::Status CheckMeshOptions(const MeshStrategyOptions& options) {
  for (const StepPartRow* row : kRows) {
    if (row->check != nullptr) TANDEM_RETURN_IF_ERROR(row->check(options));
    const Exclusions& excludes = row->exclusions;
    if (excludes.is_on == nullptr || !excludes.is_on(options)) continue;
    const Exclusion* const given = FirstGiven(excludes.others, options);
    if (given == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(excludes.begins, given->what, excludes.ends));
  }
  return absl::OkStatus();
}

absl::Status CheckStepFlags(const NamedValues& given) {
  for (const StepPartRow* row : StepPartRows()) {
    const auto* const part = Find(given, row->exclusions.flag);
    if (part == nullptr) continue;
    for (const Exclusion& each : row->exclusions.others) {
      const auto* const other = Find(given, each.flag);
      if (other == nullptr) continue;
      return absl::InvalidArgumentError(
          absl::Substitute(each.flag_message, AsGiven(*part), AsGiven(*other),
                           absl::StrCat("--", other->first)));
    }
  }
  return absl::OkStatus();
}

std::set<std::string> StepStateFlags() {
  std::set<std::string> flags;
  for (const StepPartRow* row : StepPartRows()) {
    flags.insert(row->state_flags.begin(), row->state_flags.end());
  }
  return flags;
}

StatePerParameter KeptStatePerParameter(const MeshStrategyOptions& options,
                                        int replicas, bool share_memory) {
  StatePerParameter kept;
  kept.optimizer_states = StateNumbers(options.optimizer);
  kept.states_of = StatesByName(options);
  const int shares = options.data_shard > 0 ? options.data_shard : replicas;
  if (SharesOptimizer(options, share_memory)) kept.optimizer_shares = shares;
  // Sums in the order of microbatches are of whole gradients.
  if (ShardsGradients(options.shard) && !options.reproducible) {
    kept.gradient_shares = shares;
  }
  if (options.shard == Sharding::kParameters) kept.parameter_shares = shares;
  kept.gathered_together = options.shard_min_num_params;
  // They are reduced when all microbatches have added to them.
  kept.whole_gradients = options.schedule.stages > 1;
  kept.whole_parameters = !options.reshard_after_forward;
  for (const StepPartRow* row : StepPartRows()) {
    if (row->further_state == nullptr) continue;
    kept.further += row->further_state(options, replicas);
  }
  return kept;
}

}  // namespace tandem
