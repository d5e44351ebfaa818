// Cross-replica check: whether replicas that should be alike still are, to the
// bit, and which one has drifted (silent data corruption).

#ifndef TANDEM_TOOLS_TRAINER_REPLICA_CHECK_H_
#define TANDEM_TOOLS_TRAINER_REPLICA_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/mesh/mesh.h"

namespace tandem {

// Compares what each rank has of a model's parameters with what the ranks at
// the same place of the other replicas have. `mine`: this rank's, as far as
// replicas have them alike (TrainedState::AlikeParameters); `world`: all ranks
// of `mesh`. DataLoss on every rank, alike, where they differ: names the
// ranks that are in the minority, or all of them where there is none, and the
// first parameter that differs. Reads every parameter once, for a CRC-32 of
// each (a single flipped bit always shows, other accidents but for one in four
// thousand million), and sends those and the names. Collective.
absl::Status CheckReplicasAgree(const NamedTensors& mine, const Mesh& mesh,
                                int64_t step, Communicator& world);

// Flips the lowest bit of the first value of the first of `parameters`: what
// the check is there to find, for a rehearsal.
void FlipBit(const NamedTensors& parameters);

// "w 0a1b2c3d\nb ...\n": the checksum of each of `parameters`, in byte order of
// the names.
std::string ReplicaFingerprint(NamedTensors parameters);

// What it says of fingerprints, by rank: pure.
absl::Status CompareReplicas(const std::vector<std::string>& fingerprints,
                             const Mesh& mesh, int64_t step);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPLICA_CHECK_H_
