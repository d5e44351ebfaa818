// The broadcast of ranks that share memory.

#include <cstring>
#include <utility>

#include "core/shm/chunks.h"
#include "core/shm/in_place.h"

namespace tandem {
namespace {

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
    ShmNote note = NoteOf(ShmOp::kBroadcast, tensors[0], root);
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

}  // namespace

ShmCollectivePtr MakeBroadcast(std::vector<MutableBytes> tensors, int root,
                               size_t root_tensor) {
  return std::make_unique<Broadcast>(std::move(tensors), root, root_tensor);
}

}  // namespace tandem
