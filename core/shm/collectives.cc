#include "core/shm/collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/shm/chunks.h"
#include "core/shm/memory/operation_names.h"

namespace tandem {
namespace {

using Terms = absl::InlinedVector<const void*, 16>;

class Barrier : public ShmChunked {
 public:
  Barrier()
      : ShmChunked(MakeNote(ShmOp::kBarrier, ConstBytes()), 0, kSlotBytes) {}

 private:
  void Write(const ShmRounds&, std::byte*, size_t, size_t) override {}
  void Read(const ShmRounds&, size_t, size_t) override {}
};

// All-gather and gather: a rank without outputs only gives.
class Gather : public ShmChunked {
 public:
  Gather(const ShmNote& note, ConstBytes input,
         std::vector<MutableBytes> outputs)
      : ShmChunked(note, input.size, kSlotBytes),
        input_(input),
        outputs_(std::move(outputs)) {}

 private:
  void Write(const ShmRounds& rounds, std::byte* slot, size_t begin,
             size_t n) override {
    CopyBytes(slot, input_.data + begin, n);
  }
  void Read(const ShmRounds& rounds, size_t begin, size_t n) override {
    for (size_t r = 0; r < outputs_.size(); ++r) {
      CopyBytes(outputs_[r].data + begin, rounds.Slot(static_cast<int>(r)), n);
    }
  }

  const ConstBytes input_;
  const std::vector<MutableBytes> outputs_;
};

class Scatter : public ShmChunked {
 public:
  Scatter(std::vector<ConstBytes> inputs, MutableBytes output, int root,
          int size)
      : ShmChunked(MakeNote(ShmOp::kScatter, output, root), output.size,
                   SharePerRank(size)),
        inputs_(std::move(inputs)),
        output_(output),
        root_(root) {}

 private:
  void Write(const ShmRounds&, std::byte* slot, size_t begin,
             size_t n) override {
    for (size_t r = 0; r < inputs_.size(); ++r) {
      CopyBytes(slot + r * step(), inputs_[r].data + begin, n);
    }
  }
  void Read(const ShmRounds& rounds, size_t begin, size_t n) override {
    CopyBytes(output_.data + begin, rounds.Slot(root_) + rounds.rank() * step(),
              n);
  }
  size_t written_bytes() const override {
    return inputs_.size() * output_.size;
  }

  const std::vector<ConstBytes> inputs_;
  const MutableBytes output_;
  const int root_;
};

class ReduceScatter : public ShmChunked {
 public:
  ReduceScatter(std::vector<ConstBytes> inputs, MutableBytes output,
                const Reduction& reduction, const VectorSum& sum)
      : ShmChunked(MakeNote(ShmOp::kReduceScatter, output, reduction),
                   output.size, SharePerRank(inputs.size())),
        inputs_(std::move(inputs)),
        output_(output),
        sum_(sum),
        element_bytes_(c10::elementSize(reduction.dtype)) {}

 private:
  void Write(const ShmRounds&, std::byte* slot, size_t begin,
             size_t n) override {
    for (size_t r = 0; r < inputs_.size(); ++r) {
      CopyBytes(slot + r * step(), inputs_[r].data + begin, n);
    }
  }
  void Read(const ShmRounds& rounds, size_t begin, size_t n) override {
    Terms terms;
    for (int r = 0; r < rounds.size(); ++r) {
      terms.push_back(rounds.Slot(r) + rounds.rank() * step());
    }
    void* const results[] = {output_.data + begin};
    sum_.Run(terms, results, static_cast<int64_t>(n / element_bytes_));
  }
  size_t written_bytes() const override {
    return inputs_.size() * output_.size;
  }

  const std::vector<ConstBytes> inputs_;
  const MutableBytes output_;
  const VectorSum sum_;
  const size_t element_bytes_;
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

ShmCollectivePtr MakeReduceScatter(std::vector<ConstBytes> inputs,
                                   MutableBytes output,
                                   const Reduction& reduction,
                                   const VectorSum& sum) {
  return std::make_unique<ReduceScatter>(std::move(inputs), output, reduction,
                                         sum);
}

ShmCollectivePtr MakeAllGather(ConstBytes input,
                               std::vector<MutableBytes> outputs) {
  return std::make_unique<Gather>(MakeNote(ShmOp::kAllGather, input), input,
                                  std::move(outputs));
}

ShmCollectivePtr MakeGather(ConstBytes input, std::vector<MutableBytes> outputs,
                            int root) {
  return std::make_unique<Gather>(MakeNote(ShmOp::kGather, input, root), input,
                                  std::move(outputs));
}

ShmCollectivePtr MakeScatter(std::vector<ConstBytes> inputs,
                             MutableBytes output, int root, int size) {
  return std::make_unique<Scatter>(std::move(inputs), output, root, size);
}

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
