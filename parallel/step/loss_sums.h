// Losses that layers and loss functions have added (core/loss/loss_terms.h), as
// means over a step's samples, or their named sums: by name, on every rank.

#ifndef TANDEM_PARALLEL_STEP_LOSS_SUMS_H_
#define TANDEM_PARALLEL_STEP_LOSS_SUMS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"

namespace tandem {

// Not thread-safe.
class LossSums {
 public:
  // What one microbatch gave: a loss times its share of the step's samples.
  struct Part {
    std::string name;
    int64_t microbatch = 0;  // among those of all replicas
    double value = 0;
  };

  // Sums the parts of all of the group's ranks, which have so many microbatches
  // in all, in their order: the same bits in every layout, as far as several
  // parts of one microbatch and name are exact sums. Collective over `group`:
  // the first time in any case, when its ranks tell each other which names
  // there are, and from then on if there are any. InvalidArgument for a name
  // that comes later. A null `group` sums what is given alone. Groups may take
  // turns (replicas that train apart for a while); each has names of its own,
  // and must outlive this.
  absl::Status Sum(const std::vector<Part>& parts, int64_t microbatches,
                   Communicator* group);

  // The last step's; a name that it did not have is 0.
  const std::map<std::string, double>& sums() const { return sums_; }

 private:
  using Names = std::set<std::string>;

  absl::StatusOr<Names> NamesIn(const std::vector<Part>& parts,
                                Communicator* group);

  std::map<const Communicator*, Names> agreed_;
  std::map<std::string, double> sums_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_LOSS_SUMS_H_
