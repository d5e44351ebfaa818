// Which checks of values a job is asked for, and whether they fit what else is
// asked.

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// What has replicas differ, as it should.
absl::Status CheckValues(const TrainOptions& options) {
  if (options.check_replicas_every == 0) return absl::OkStatus();
  const std::string given =
      absl::StrCat("--check_replicas_every=", options.check_replicas_every);
  if (ServersOf(options) > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        given, " compares replicas, but workers of --strategy=",
        options.strategy, " have parameters of different ages: leave one out"));
  }
  if (options.ddp.shard_optimizer == "on") {
    return absl::InvalidArgumentError(absl::StrCat(
        given,
        " compares replicas, which --shard_optimizer=on makes alike in "
        "each step, for the owner of a parameter sends its values, "
        "corrupted or not: leave one out"));
  }
  const int64_t every = options.ddp.average_parameters_every;
  if (every == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      given, " compares replicas, which --average_parameters_every=", every,
      every == 1 ? " makes alike in each step, corrupted or not"
                 : " has train apart for a while",
      ": leave one out"));
}

}  // namespace tandem
