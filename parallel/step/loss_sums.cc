#include "parallel/step/loss_sums.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// The names of all of the group's ranks.
absl::StatusOr<std::set<std::string>> Gather(const std::set<std::string>& mine,
                                             Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          group.AllGatherString(absl::StrJoin(mine, "\n"), [] {
                            return "the names of losses";
                          }));
  std::set<std::string> names;
  for (const std::string& joined : all) {
    for (const auto& name : absl::StrSplit(joined, '\n', absl::SkipEmpty())) {
      names.emplace(name);
    }
  }
  return names;
}

}  // namespace

// The names of the group's sums, which all of its ranks have alike.
absl::StatusOr<LossSums::Names> LossSums::NamesIn(
    const std::vector<Part>& parts, Communicator* group) {
  const auto agreed = agreed_.find(group);
  if (agreed != agreed_.end()) return agreed->second;
  Names names;
  for (const auto& each : agreed_) {
    names.insert(each.second.begin(), each.second.end());
  }
  for (const Part& each : parts) names.insert(each.name);
  if (group == nullptr) return names;
  TANDEM_ASSIGN_OR_RETURN(names, Gather(names, *group));
  agreed_[group] = names;
  return names;
}

absl::Status LossSums::Sum(const std::vector<Part>& parts, int64_t microbatches,
                           Communicator* group) {
  TANDEM_ASSIGN_OR_RETURN(const Names known, NamesIn(parts, group));
  sums_.clear();
  for (const std::string& each : known) sums_[each] = 0;
  const auto names = static_cast<int64_t>(sums_.size());
  const at::Tensor all = at::zeros({names, microbatches}, at::kDouble);
  auto* const values = all.mutable_data_ptr<double>();
  for (const Part& each : parts) {
    const auto found = sums_.find(each.name);
    if (found == sums_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "loss ", each.name,
          " was not there in the first step: every loss must be added in it, "
          "so that all ranks know its name"));
    }
    CHECK(0 <= each.microbatch && each.microbatch < microbatches);
    values[std::distance(sums_.begin(), found) * microbatches +
           each.microbatch] += each.value;
  }
  if (group != nullptr && names > 0) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(group->AllReduceSum(all, [] { return "losses"; }));
  }
  const double* next = values;
  for (auto& each : sums_) {
    each.second = 0;
    for (int64_t i = 0; i < microbatches; ++i) each.second += *next++;
  }
  return absl::OkStatus();
}

}  // namespace tandem
