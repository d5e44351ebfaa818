// Cross-replica check: whether replicas that should be alike still are, to the
// bit, and which one has drifted (silent data corruption).

#ifndef TANDEM_TOOLS_TRAINER_REPLICA_CHECK_H_
#define TANDEM_TOOLS_TRAINER_REPLICA_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/named_tensors.h"
#include "core/comm/communicator.h"
#include "core/mesh/mesh.h"

namespace tandem {

// Compares what each rank has of a model's parameters with what the ranks at
// the same place of the other replicas have. `mine`: this rank's; `world`: all
// ranks of `mesh`. DataLoss on every rank, alike, where they differ: names the
// ranks that are in the minority, or all of them where there is none. Reads
// every parameter once, and sends 64 bytes. Collective.
absl::Status CheckReplicasAgree(const NamedTensors& mine, const Mesh& mesh,
                                int64_t step, Communicator& world);

// Flips the lowest bit of the first value of the first of `parameters`: what
// the check is there to find, for a rehearsal.
void FlipBit(const NamedTensors& parameters);

// What it says of fingerprints, by rank: pure.
absl::Status CompareReplicas(const std::vector<std::string>& fingerprints,
                             const Mesh& mesh, int64_t step);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPLICA_CHECK_H_
