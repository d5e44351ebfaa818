#include "parallel/strategy/loss_sums.h"

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

absl::Status LossSums::Agree(const std::vector<Part>& parts,
                             Communicator& world) {
  std::set<std::string> mine;
  for (const Part& each : parts) mine.insert(each.name);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(absl::StrJoin(mine, "\n"), [] {
                            return "the names of losses";
                          }));
  sums_.clear();
  for (const std::string& names : all) {
    for (const auto& name : absl::StrSplit(names, '\n', absl::SkipEmpty())) {
      sums_[std::string(name)] = 0;
    }
  }
  agreed_ = true;
  return absl::OkStatus();
}

absl::Status LossSums::Sum(const std::vector<Part>& parts, int64_t microbatches,
                           Communicator* world) {
  if (world == nullptr) {
    if (!agreed_) sums_.clear();
    for (const Part& each : parts) sums_[each.name] = 0;
  } else if (!agreed_) {
    TANDEM_RETURN_IF_ERROR(Agree(parts, *world));
  }
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
  if (world != nullptr && names > 0) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(world->AllReduceSum(all, [] { return "losses"; }));
  }
  const double* next = values;
  for (auto& each : sums_) {
    each.second = 0;
    for (int64_t i = 0; i < microbatches; ++i) each.second += *next++;
  }
  return absl::OkStatus();
}

}  // namespace tandem
