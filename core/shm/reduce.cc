// The reduction of ranks that share memory to one of them.

#include "core/shm/chunks.h"
#include "core/shm/in_place.h"

namespace tandem {
namespace {

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
    ShmNote note = NoteOf(ShmOp::kReduce, tensor, reduction, root);
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

}  // namespace

ShmCollectivePtr MakeReduce(MutableBytes tensor, int root,
                            const Reduction& reduction, const VectorSum& sum) {
  return std::make_unique<Reduce>(tensor, root, reduction, sum);
}

}  // namespace tandem
