#include "core/shm/collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/shm/chunks.h"
#include "core/shm/memory/operation_names.h"

namespace tandem {
namespace {

class Barrier : public ShmChunked {
 public:
  Barrier()
      : ShmChunked(MakeNote(ShmOp::kBarrier, ConstBytes()), 0, kSlotBytes) {}

 private:
  void Write(const ShmRounds&, std::byte*, size_t, size_t) override {}
  void Read(const ShmRounds&, size_t, size_t) override {}
};

class Reduce : public ShmChunked {
 public:
  Reduce(MutableBytes tensor, int root, const Reduction& reduction,
         const VectorSum& sum)
      : ShmChunked(NoteFor(tensor, root, reduction), tensor.size, kSlotBytes),
        tensor_(tensor),
        root_(root),
        sum_(sum),
        element_bytes_(c10::elementSize(reduction.dtype)) {}

 private:
  static ShmNote NoteFor(const MutableBytes& tensor, int root,
                         const Reduction& reduction) {
    ShmNote note = MakeNote(ShmOp::kReduce, tensor, reduction, root);
    note.offset = OffsetInNote(tensor);
    return note;
  }
  void Write(const ShmRounds&, std::byte* slot, size_t begin,
             size_t n) override {
    CopyBytes(slot, tensor_.data + begin, n);
  }
  void Read(const ShmRounds& rounds, size_t begin, size_t n) override {
    if (rounds.rank() != root_) return;
    PerRank<const void*> terms;
    for (int r = 0; r < rounds.size(); ++r) terms.push_back(rounds.Slot(r));
    Sum(terms, tensor_.data + begin, n);
  }
  absl::Status InPlace(ShmRounds& rounds, ShmDeadline deadline) override {
    return WorkInPlace(
        rounds, deadline, tensor_,
        [&](absl::Span<std::byte* const> block_of_rank, size_t n) {
          const PerRank<const void*> terms(block_of_rank.begin(),
                                           block_of_rank.end());
          Sum(terms, block_of_rank[root_], n);
        });
  }
  void Sum(const PerRank<const void*>& terms, void* result, size_t n) const {
    void* const results[] = {result};
    sum_.Run(terms, results, static_cast<int64_t>(n / element_bytes_));
  }

  const MutableBytes tensor_;
  const int root_;
  const VectorSum sum_;
  const size_t element_bytes_;
};

class Broadcast : public ShmChunked {
 public:
  Broadcast(std::vector<MutableBytes> tensors, int root, size_t root_tensor)
      : ShmChunked(NoteFor(tensors, root, root_tensor), tensors[0].size,
                   kSlotBytes),
        tensors_(std::move(tensors)),
        root_(root),
        root_tensor_(root_tensor) {}

 private:
  static ShmNote NoteFor(const std::vector<MutableBytes>& tensors, int root,
                         size_t root_tensor) {
    ShmNote note = MakeNote(ShmOp::kBroadcast, tensors[0], root);
    if (tensors.size() == 1) note.offset = OffsetInNote(tensors[0]);
    note.variant = static_cast<uint32_t>(root_tensor);
    return note;
  }
  void Write(const ShmRounds& rounds, std::byte* slot, size_t begin,
             size_t n) override {
    if (rounds.rank() != root_) return;
    CopyBytes(slot, tensors_[root_tensor_].data + begin, n);
  }
  void Read(const ShmRounds& rounds, size_t begin, size_t n) override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (rounds.rank() == root_ && i == root_tensor_) continue;
      CopyBytes(tensors_[i].data + begin, rounds.Slot(root_), n);
    }
  }
  absl::Status InPlace(ShmRounds& rounds, ShmDeadline deadline) override {
    return WorkInPlace(
        rounds, deadline, tensors_[0],
        [&](absl::Span<std::byte* const> block_of_rank, size_t n) {
          for (std::byte* block : block_of_rank) {
            if (block != block_of_rank[root_]) {
              std::memcpy(block, block_of_rank[root_], n);
            }
          }
        });
  }

  const std::vector<MutableBytes> tensors_;
  const int root_;
  const size_t root_tensor_;
};

class MonitoredBarrier : public ShmCollective {
 public:
  explicit MonitoredBarrier(std::chrono::milliseconds timeout)
      : timeout_(timeout) {}

  void Begin(ShmRounds& rounds) override {
    ShmNote note;
    note.operation = static_cast<uint32_t>(ShmOp::kMonitoredBarrier);
    rounds.Arrive(note);
  }

  absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) override {
    absl::Status status = rounds.Await(deadline);
    const std::vector<int> missing = rounds.Missing();
    if (!absl::IsDeadlineExceeded(status) || missing.empty()) return status;
    return absl::DeadlineExceededError(
        absl::StrCat(missing.size() == 1 ? "Rank " : "Ranks ",
                     ShortList(missing), " failed to pass monitoredBarrier in ",
                     timeout_.count(), " ms: ", status.message()));
  }

  bool begins_cheaply() const override { return true; }
  bool is_long() const override { return false; }

 private:
  const std::chrono::milliseconds timeout_;
};

}  // namespace

ShmCollectivePtr MakeBarrier() { return std::make_unique<Barrier>(); }

ShmCollectivePtr MakeReduce(MutableBytes tensor, int root,
                            const Reduction& reduction, const VectorSum& sum) {
  return std::make_unique<Reduce>(tensor, root, reduction, sum);
}

ShmCollectivePtr MakeBroadcast(std::vector<MutableBytes> tensors, int root,
                               size_t root_tensor) {
  return std::make_unique<Broadcast>(std::move(tensors), root, root_tensor);
}

ShmCollectivePtr MakeMonitoredBarrier(std::chrono::milliseconds timeout) {
  return std::make_unique<MonitoredBarrier>(timeout);
}

}  // namespace tandem
