// All-reduce of ranks that share memory.

#ifndef TANDEM_CORE_SHM_ALL_REDUCE_H_
#define TANDEM_CORE_SHM_ALL_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/shm/collectives.h"

namespace tandem {

// One of three ways, the same bits in each:
//   small: every rank copies its tensor into its slot and sums all slots, so
//     that all ranks together read the square of their number.
//   in place: all tensors lie in arenas, and are not tiny. In blocks, the sum
//     of all ranks' tensors is written into all of them (core/shm/in_place.h).
//   staged: in chunks through the slots. Up to three ranks each sum all of a
//     chunk; more divide it and exchange the sums in a second round.
class ShmAllReduce : public ShmCollective {
 public:
  ShmAllReduce(MutableBytes tensor, const Reduction& reduction,
               const VectorSum& sum);

  void Begin(ShmRounds& rounds) override;
  absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) override;
  bool begins_cheaply() const override { return true; }
  bool is_long() const override;

 private:
  bool IsSmall(int ranks) const;
  // Sums [begin, begin + n) of the chunk that is in all slots.
  void SumSlots(const ShmRounds& rounds, size_t begin, size_t n,
                std::byte* result) const;
  absl::Status InPlace(ShmRounds& rounds, ShmDeadline deadline);
  absl::Status Staged(ShmRounds& rounds, ShmDeadline deadline);
  // One chunk of the tensor, from its copy into the slots on.
  absl::Status StageChunk(ShmRounds& rounds, ShmDeadline deadline,
                          std::byte* chunk, size_t n);
  absl::Status DivideChunk(ShmRounds& rounds, ShmDeadline deadline,
                           std::byte* chunk, size_t n);

  const MutableBytes tensor_;
  const VectorSum sum_;
  const size_t element_bytes_;
  ShmNote note_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_ALL_REDUCE_H_
