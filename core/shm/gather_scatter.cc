// All-gather, gather, scatter and reduce-scatter of ranks that share memory:
// each rank has a part of its own.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "core/shm/chunks.h"
#include "core/shm/collectives.h"
#include "core/shm/memory/operation_names.h"

namespace tandem {
namespace {

// Calls work(owner, piece_of_rank, bytes) with what a block of all ranks'
// tensors has of each rank's part. The tensors are parts of `part` bytes, one a
// rank; the block begins at `begin`.
template <typename Work>
void ForEachPiece(absl::Span<std::byte* const> block_of_rank, size_t begin,
                  size_t bytes, size_t part, const Work& work) {
  for (size_t done = 0; done < bytes;) {
    const size_t owner = (begin + done) / part;
    const size_t n = std::min(bytes - done, (owner + 1) * part - begin - done);
    PerRank<std::byte*> piece(block_of_rank.begin(), block_of_rank.end());
    for (std::byte*& each : piece) each += done;
    work(owner, piece, n);
    done += n;
  }
}

// All-gather and gather: a rank without outputs only gives.
class Gather : public ShmChunked {
 public:
  Gather(const ShmNote& note, ConstBytes input,
         std::vector<MutableBytes> outputs, MutableBytes whole)
      : ShmChunked(note, input.size, kSlotBytes),
        input_(input),
        outputs_(std::move(outputs)),
        whole_(whole) {}

 private:
  void Write(const ShmRounds&, std::byte* slot, size_t begin,
             size_t n) override {
    CopyBytes(slot, input_.data + begin, n);
  }
  void Read(const ShmRounds& rounds, size_t begin, size_t n) override {
    for (size_t r = 0; r < outputs_.size(); ++r) {
      if (static_cast<int>(r) == rounds.rank()) {
        CopyOwn(rounds, begin, n);
      } else {
        CopyBytes(outputs_[r].data + begin, rounds.Slot(static_cast<int>(r)),
                  n);
      }
    }
  }
  void Place(const ShmRounds& rounds) override {
    CopyOwn(rounds, 0, input_.size);
  }
  size_t placed_bytes() const override {
    const bool is_there = absl::c_any_of(outputs_, [this](const auto& each) {
      return each.data == input_.data;
    });
    return is_there ? 0 : input_.size;
  }
  size_t moved_bytes() const override {
    return std::max<size_t>(1, outputs_.size()) * input_.size;
  }
  absl::Status InPlace(ShmRounds& rounds, ShmDeadline deadline) override {
    return WorkInPlace(
        rounds, deadline, whole_,
        [&](absl::Span<std::byte* const> block_of_rank, size_t n) {
          const size_t begin = block_of_rank[rounds.rank()] - whole_.data;
          ForEachPiece(block_of_rank, begin, n, input_.size, &CopyToOthers);
        });
  }

  void CopyOwn(const ShmRounds& rounds, size_t begin, size_t n) {
    std::byte* const own = outputs_[rounds.rank()].data;
    if (own != input_.data) CopyBytes(own + begin, input_.data + begin, n);
  }
  static void CopyToOthers(size_t owner, absl::Span<std::byte* const> piece,
                           size_t n) {
    for (std::byte* each : piece) {
      if (each != piece[owner]) std::memcpy(each, piece[owner], n);
    }
  }

  const ConstBytes input_;
  const std::vector<MutableBytes> outputs_;
  const MutableBytes whole_;
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
                MutableBytes whole, const Reduction& reduction,
                const VectorSum& sum)
      : ShmChunked(NoteFor(output, whole, reduction), output.size,
                   SharePerRank(inputs.size())),
        inputs_(std::move(inputs)),
        output_(output),
        whole_(whole),
        sum_(sum),
        element_bytes_(c10::elementSize(reduction.dtype)) {}

 private:
  static ShmNote NoteFor(const MutableBytes& output, const MutableBytes& whole,
                         const Reduction& reduction) {
    ShmNote note = MakeNote(ShmOp::kReduceScatter, output, reduction);
    note.offset = OffsetInNote(whole);
    return note;
  }
  // Nobody else reads this rank's own part.
  void Write(const ShmRounds& rounds, std::byte* slot, size_t begin,
             size_t n) override {
    for (size_t r = 0; r < inputs_.size(); ++r) {
      if (static_cast<int>(r) == rounds.rank()) continue;
      CopyBytes(slot + r * step(), inputs_[r].data + begin, n);
    }
  }
  void Read(const ShmRounds& rounds, size_t begin, size_t n) override {
    PerRank<const void*> terms;
    for (int r = 0; r < rounds.size(); ++r) {
      terms.push_back(r == rounds.rank()
                          ? inputs_[r].data + begin
                          : rounds.Slot(r) + rounds.rank() * step());
    }
    Sum(terms, output_.data + begin, n);
  }
  size_t written_bytes() const override {
    return (inputs_.size() - 1) * output_.size;
  }
  size_t moved_bytes() const override { return inputs_.size() * output_.size; }
  absl::Status InPlace(ShmRounds& rounds, ShmDeadline deadline) override {
    return WorkInPlace(
        rounds, deadline, whole_,
        [&](absl::Span<std::byte* const> block_of_rank, size_t bytes) {
          const size_t begin = block_of_rank[rounds.rank()] - whole_.data;
          ForEachPiece(
              block_of_rank, begin, bytes, output_.size,
              [&](size_t owner, absl::Span<std::byte* const> piece, size_t n) {
                const PerRank<const void*> terms(piece.begin(), piece.end());
                Sum(terms, piece[owner], n);
              });
        });
  }
  void Sum(const PerRank<const void*>& terms, void* result, size_t n) const {
    void* const results[] = {result};
    sum_.Run(terms, results, static_cast<int64_t>(n / element_bytes_));
  }

  const std::vector<ConstBytes> inputs_;
  const MutableBytes output_;
  const MutableBytes whole_;
  const VectorSum sum_;
  const size_t element_bytes_;
};

}  // namespace

ShmCollectivePtr MakeReduceScatter(std::vector<ConstBytes> inputs,
                                   MutableBytes output,
                                   const Reduction& reduction,
                                   const VectorSum& sum, MutableBytes whole) {
  return std::make_unique<ReduceScatter>(std::move(inputs), output, whole,
                                         reduction, sum);
}

ShmCollectivePtr MakeAllGather(ConstBytes input,
                               std::vector<MutableBytes> outputs,
                               MutableBytes whole) {
  ShmNote note = MakeNote(ShmOp::kAllGather, input);
  note.offset = OffsetInNote(whole);
  return std::make_unique<Gather>(note, input, std::move(outputs), whole);
}

ShmCollectivePtr MakeGather(ConstBytes input, std::vector<MutableBytes> outputs,
                            int root) {
  return std::make_unique<Gather>(MakeNote(ShmOp::kGather, input, root), input,
                                  std::move(outputs), MutableBytes());
}

ShmCollectivePtr MakeScatter(std::vector<ConstBytes> inputs,
                             MutableBytes output, int root, int size) {
  return std::make_unique<Scatter>(std::move(inputs), output, root, size);
}

}  // namespace tandem
