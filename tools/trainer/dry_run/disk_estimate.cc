#include "tools/trainer/dry_run/disk_estimate.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/byte_size.h"
#include "tools/trainer/dry_run/memory_estimate.h"
#include "tools/trainer/job/save_folder.h"

namespace tandem {
namespace {

// a * b, or what no step reaches.
int64_t AtMostEnd(int64_t a, int64_t b) {
  const auto product = static_cast<__int128>(a) * b;
  constexpr auto kEnd = std::numeric_limits<int64_t>::max();
  return product > kEnd ? kEnd : static_cast<int64_t>(product);
}

// Multiples of `period` in (done, steps]; 0 has none.
int64_t Multiples(int64_t period, const SavePlan& plan) {
  return period == 0 ? 0 : plan.steps / period - plan.done / period;
}

// The least that both divide; 0 where one is 0.
int64_t Common(int64_t a, int64_t b) {
  return a == 0 || b == 0 ? 0 : AtMostEnd(a / std::gcd(a, b), b);
}

// Steps from one checkpoint to the next, of each reason for one.
std::vector<int64_t> SavePeriods(const SavePlan& plan) {
  std::vector<int64_t> periods = {
      plan.save_every, AtMostEnd(plan.save_every_epochs, plan.steps_per_epoch)};
  if (plan.keep_best) {
    periods.push_back(plan.eval_every);
    periods.push_back(plan.steps_per_epoch);
  }
  return periods;
}

// Steps in (done, steps] that any of the periods divides: by inclusion and
// exclusion.
int64_t MultiplesOfAny(const std::vector<int64_t>& periods,
                       const SavePlan& plan) {
  int64_t count = 0;
  for (size_t chosen = 1; chosen < size_t{1} << periods.size(); ++chosen) {
    int64_t common = 1;
    int64_t sign = -1;
    for (size_t i = 0; i < periods.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      common = Common(common, periods[i]);
      sign = -sign;
    }
    count += sign * Multiples(common, plan);
  }
  return count;
}

}  // namespace

int64_t CheckpointCount(const SavePlan& plan) {
  if (plan.steps <= plan.done) return 0;
  const std::vector<int64_t> periods = SavePeriods(plan);
  const bool last_is_one = absl::c_any_of(periods, [&](int64_t period) {
    return period > 0 && plan.steps % period == 0;
  });
  return MultiplesOfAny(periods, plan) + (last_is_one ? 0 : 1);
}

int64_t MostCheckpoints(const SavePlan& plan) {
  const int64_t made = CheckpointCount(plan);
  if (plan.keep_last == 0 || made == 0) return made;
  // Kept for good: those of the steps that --keep_every divides.
  std::vector<int64_t> periods = SavePeriods(plan);
  for (int64_t& period : periods) period = Common(period, plan.keep_every);
  const int64_t kept = MultiplesOfAny(periods, plan);
  // Beside the newest there is one more while it is replaced, and the best.
  return std::min(made, kept + plan.keep_last + (plan.keep_best ? 2 : 1));
}

DiskEstimate EstimateDisk(const JobPlan& plan) {
  const TrainOptions& options = plan.job.options;
  DiskEstimate estimate;
  if (options.save_dir.empty() || options.eval_only) return estimate;
  SavePlan saves;
  saves.steps = plan.training.steps;
  saves.steps_per_epoch = std::max<int64_t>(1, plan.training.steps_per_epoch);
  saves.done = plan.start.step;
  saves.save_every = options.save_every;
  saves.save_every_epochs = options.save_every_epochs;
  saves.keep_last = options.keep_last;
  saves.keep_every = options.keep_every;
  saves.keep_best = options.keep_best != "off";
  saves.eval_every = options.eval_every;
  estimate.checkpoint = CheckpointBytes(plan);
  estimate.made = CheckpointCount(saves);
  estimate.at_once = MostCheckpoints(saves);
  std::error_code error;
  const auto space =
      std::filesystem::space(NearestThere(options.save_dir), error);
  if (!error) {
    estimate.free = static_cast<int64_t>(std::min<uintmax_t>(
        space.available, std::numeric_limits<int64_t>::max()));
  }
  return estimate;
}

absl::Status CheckDisk(const DiskEstimate& estimate,
                       const TrainOptions& options) {
  const auto needed = static_cast<double>(estimate.checkpoint) *
                      static_cast<double>(estimate.at_once);
  if (estimate.free < 0 || needed <= static_cast<double>(estimate.free)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "--save_dir=", options.save_dir, ": ", estimate.at_once,
      estimate.at_once == 1 ? " checkpoint of " : " checkpoints of ",
      FormatBytes(estimate.checkpoint),
      options.keep_best == "off" ? " will" : " may",
      " be there at once, but its disk has ", FormatBytes(estimate.free),
      " left: free some, or give --keep_last=NUMBER, a larger --save_every, or "
      "a folder of another disk"));
}

}  // namespace tandem
