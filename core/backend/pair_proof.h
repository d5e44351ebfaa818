// Pair proof: whether the other end of each connection of a group is the rank
// that it should be.

#ifndef TANDEM_CORE_BACKEND_PAIR_PROOF_H_
#define TANDEM_CORE_BACKEND_PAIR_PROOF_H_

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"

namespace tandem {

// Each rank sends each other one a code for the two of them (HMAC-SHA256),
// under a key that rank 0 leaves on the group's own `store`. So whoever has
// taken a rank's place in a connection, and cannot read the store, is found
// out: Unavailable names the rank. Who stays silent is found out by the group's
// timeout. A collective (one all-to-all on `group`), which all ranks of the
// group call once. Throws what they throw.
absl::Status ProvePairs(c10d::Backend& group, c10d::Store& store);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_PAIR_PROOF_H_
