// Collectives of ranks that share memory, on plain arrays.

#ifndef TANDEM_CORE_SHM_COLLECTIVES_H_
#define TANDEM_CORE_SHM_COLLECTIVES_H_

#include <c10/core/ScalarType.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/shm/memory/rounds.h"
#include "core/vector/sum.h"

namespace tandem {

// Up to this size a tensor goes through one slot, in one round.
constexpr size_t kSmallBytes = 64 << 10;

// One collective of one rank. The arrays must stay until Finish() has returned.
// All ranks go through the same collectives in the same order, with the same
// arguments; where they do not, every rank that sees it returns
// InvalidArgument.
class ShmCollective {
 public:
  virtual ~ShmCollective() = default;

  // Arrives at the first round, which is possible once the collective before
  // has finished on this rank. Does not wait.
  virtual void Begin(ShmRounds& rounds) = 0;
  // Everything else.
  virtual absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) = 0;

  // Does Begin() copy little, so that the thread that issues may call it?
  virtual bool begins_cheaply() const = 0;
  // Is it so much that it should go on in the background? What is not is left
  // for the thread that waits for it.
  virtual bool is_long() const = 0;
};

// `dtype` is what ranks compare: nothing here converts.
struct ConstBytes {
  const std::byte* data = nullptr;
  size_t size = 0;
  c10::ScalarType dtype = c10::ScalarType::Byte;
};
struct MutableBytes {
  std::byte* data = nullptr;
  size_t size = 0;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  int64_t offset = -1;  // of `data` in this rank's arena; -1: elsewhere
};

using ShmCollectivePtr = std::unique_ptr<ShmCollective>;

ShmCollectivePtr MakeBarrier();
// Its DeadlineExceeded names the ranks in c10d's words: "Ranks 1, 2 failed to
// pass monitoredBarrier in 1000 ms".
ShmCollectivePtr MakeMonitoredBarrier(std::chrono::milliseconds timeout);

// When all ranks' tensors lie in their arenas, the next five work on them
// there.

// In place. `divisor` and `factor` as in Reduction.
ShmCollectivePtr MakeAllReduce(MutableBytes tensor, const Reduction& reduction,
                               const VectorSum& sum);

// The result is written on `root` alone.
ShmCollectivePtr MakeReduce(MutableBytes tensor, int root,
                            const Reduction& reduction, const VectorSum& sum);

// Tensors of one size: that of index `root_tensor` on `root` becomes all of
// them, on all ranks. (Several are copied, wherever they lie.)
ShmCollectivePtr MakeBroadcast(std::vector<MutableBytes> tensors, int root,
                               size_t root_tensor);

// `inputs`: for each rank what it is to get, all of `output`'s size. `output`
// may be this rank's own input, and overlaps none in another way. `whole`: the
// tensor of which `inputs` are the equal parts, in order, if `output` is one of
// them; else nothing.
ShmCollectivePtr MakeReduceScatter(std::vector<ConstBytes> inputs,
                                   MutableBytes output,
                                   const Reduction& reduction,
                                   const VectorSum& sum,
                                   MutableBytes whole = {});

// `outputs`: one of `input`'s size for each rank. `input` may be this rank's
// own output, and overlaps none in another way. `whole`: the tensor of which
// they are the equal parts, in order; nothing, if there is none.
ShmCollectivePtr MakeAllGather(ConstBytes input,
                               std::vector<MutableBytes> outputs,
                               MutableBytes whole = {});

// The same for `root` alone; `outputs` of other ranks than `root` are empty
// vectors.
ShmCollectivePtr MakeGather(ConstBytes input, std::vector<MutableBytes> outputs,
                            int root);

// Among `size` ranks; `inputs` of others than `root` are empty vectors.
ShmCollectivePtr MakeScatter(std::vector<ConstBytes> inputs,
                             MutableBytes output, int root, int size);

// What rank r gets, and what comes from rank r, all of one dtype. Sizes may
// differ; where a rank does not send what the other expects, all get the same
// InvalidArgument.
ShmCollectivePtr MakeAllToAll(std::vector<ConstBytes> inputs,
                              std::vector<MutableBytes> outputs);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_COLLECTIVES_H_
