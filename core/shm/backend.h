// Shared memory as a c10d backend: for ranks of one host, without Gloo's
// sockets, copies and thread switches.

#ifndef TANDEM_CORE_SHM_BACKEND_H_
#define TANDEM_CORE_SHM_BACKEND_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "core/shm/collectives.h"
#include "core/shm/group.h"
#include "core/store/store.h"

namespace tandem {

// Arguments of c10d's operations, checked, as plain arrays. What does not hold
// is thrown, as c10d's backends do.

// For operations that c10d declares for several devices' tensors.
template <typename T>
const T& SingleTensor(const std::vector<T>& list) {
  TORCH_CHECK(list.size() == 1, "shm takes one tensor a collective, not ",
              list.size());
  return list[0];
}

// Bytes of a dense contiguous tensor on the CPU.
ConstBytes InputBytes(const at::Tensor& tensor);
MutableBytes OutputBytes(const at::Tensor& tensor);

// One tensor for each of `count` ranks, by one of the two above.
template <typename Bytes>
std::vector<Bytes> BytesOfEach(const std::vector<at::Tensor>& tensors,
                               size_t count, Bytes (*of)(const at::Tensor&)) {
  TORCH_CHECK(tensors.size() == count, "a tensor for each of ", count,
              " ranks is needed, not ", tensors.size());
  std::vector<Bytes> all;
  for (const at::Tensor& tensor : tensors) all.push_back(of(tensor));
  return all;
}

void CheckDtypes(c10::ScalarType one, c10::ScalarType other);

// Checks that all have the size of `like`, and its dtype: nothing is converted.
template <typename Bytes, typename Like>
void CheckAlike(const std::vector<Bytes>& each, const Like& like) {
  for (const Bytes& one : each) {
    CheckDtypes(one.dtype, like.dtype);
    TORCH_CHECK(one.size == like.size, "tensors differ in size: ", one.size,
                " and ", like.size, " bytes");
  }
}

// None negative, and `rows` in all.
void CheckSplits(const std::vector<int64_t>& splits, int64_t rows);

template <typename Inputs, typename Outputs>
void CheckOneDtype(const Inputs& inputs, const Outputs& outputs) {
  for (const auto& each : inputs) CheckDtypes(each.dtype, inputs[0].dtype);
  for (const auto& each : outputs) CheckDtypes(each.dtype, inputs[0].dtype);
}

// Cuts a tensor in equal parts, or in splits of rows, which must add up to it.
template <typename Bytes>
std::vector<Bytes> CutBytes(const Bytes& whole, size_t count,
                            const std::vector<int64_t>& splits = {},
                            int64_t rows = 0) {
  TORCH_CHECK(!splits.empty() || whole.size % count == 0,
              "cannot be divided among ", count, " ranks");
  TORCH_CHECK(splits.empty() || splits.size() == count,
              "one split for each of ", count, " ranks is needed");
  if (!splits.empty()) CheckSplits(splits, rows);
  std::vector<Bytes> parts;
  size_t begin = 0;
  for (size_t r = 0; r < count; ++r) {
    const size_t bytes = splits.empty() ? whole.size / count
                         : rows == 0    ? 0
                                        : whole.size / rows * splits[r];
    parts.push_back({whole.data + begin, bytes, whole.dtype});
    begin += bytes;
  }
  return parts;
}

// How many rows splits divide.
int64_t RowCount(const at::Tensor& tensor);

// In 0 .. size - 1; `what` is for the message.
int CheckIndex(const char* what, int64_t index, size_t size);
inline int CheckRank(int64_t rank, int size) {
  return CheckIndex("rank", rank, size);
}

// CPU tensors only, dense and contiguous, one a collective (several of one size
// in a broadcast). What each operation does is c10d's; differences and details:
//   - Reductions: SUM, AVG, PREMUL_SUM (floating point), PRODUCT, MIN, MAX and,
//     for integers, BAND, BOR, BXOR. Which bits: core/vector/sum.h.
//   - All-reduce, reduce and broadcast of tensors that allocateTensor() made,
//     on all ranks, copy nothing on the way. Nor do an all-gather into such a
//     tensor and a reduce-scatter of one, both `single`, whose part is this
//     rank's of it.
//   - Ranks that disagree on what they do, dtypes included, get an error that
//     says who does what.
//   - Errors: core/shm/work.h. The group's timeout (or the operation's own)
//     counts from when an operation is first in line.
//   - Point to point: messages of any size, matched by rank and tag.
// Thread-safe as other backends: one thread issues collectives.
class ShmBackend : public c10d::Backend {
 public:
  // See ShmGroup::Create().
  static absl::StatusOr<c10::intrusive_ptr<ShmBackend>> Create(
      const StorePtr& store, int rank, int size,
      std::chrono::milliseconds timeout, std::vector<int> names = {});

  ShmBackend(std::shared_ptr<ShmGroup> group,
             std::chrono::milliseconds timeout);
  // Finishes what was issued, and leaves the group.
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
  }
  uint64_t getSequenceNumberForGroup() override { return issued_; }

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options = {}) override;
  WorkPtr allreduce_coalesced(
      Tensors& tensors,
      const c10d::AllreduceCoalescedOptions& options = {}) override;
  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& options = {}) override;
  WorkPtr reduce(Tensors& tensors,
                 const c10d::ReduceOptions& options = {}) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options = {}) override;
  WorkPtr all_gather_single(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& options = {}) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options = {}) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options = {}) override;
  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr reduce_scatter_single(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options = {}) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options = {}) override;
  WorkPtr barrier(const c10d::BarrierOptions& options = {}) override;
  // Waits itself, on every rank; whoever waits in vain is told all ranks that
  // did not come: "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms". (In
  // Gloo's only rank 0 is, and of the first unless `wait_all_ranks`.)
  void monitoredBarrier(const c10d::BarrierOptions& options = {},
                        bool wait_all_ranks = false) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;

  // Zeros, [size], of any dtype, in memory that the ranks of this host can map.
  // The tensor may outlive the backend.
  at::Tensor allocateTensor(long size, at::TensorOptions options = {}) override;
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }

  // For who waits for other ranks elsewhere: ShmGroup::CheckPeers().
  absl::Status CheckPeers() const { return group_->CheckPeers(); }

  // Others' collectives fail at once with "rank R gave up: REASON" (of which
  // 1 KiB is told), and this rank's as well.
  void Abort(const std::string& reason);
  void abort() override { Abort("aborted"); }
  void shutdown() override { group_->Close(); }

 private:
  WorkPtr Issue(c10d::OpType type, ShmCollectivePtr collective,
                std::chrono::milliseconds timeout, Tensors outputs,
                Tensors inputs = {});
  // With its place in the arena, if it lies there.
  MutableBytes PlacedBytes(const at::Tensor& tensor) const;

  const std::shared_ptr<ShmGroup> group_;
  std::chrono::milliseconds timeout_;
  uint64_t issued_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_BACKEND_H_
