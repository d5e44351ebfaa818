#include "datasets/tokenizers/byte_pair/encoding.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace tandem {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

uint64_t PairKey(uint32_t left, uint32_t right) {
  return uint64_t{left} << 32 | right;
}

}  // namespace

// A token of the piece, in a list of neighbours.
struct BytePairEncoding::Part {
  uint32_t token;
  size_t before;
  size_t after;
  bool gone = false;  // into the part on its left
};

// Neighbours that a merge takes, as they were when it was noted.
struct BytePairEncoding::Candidate {
  uint32_t rank;
  size_t left;  // of them, the part
  uint32_t merged;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

class BytePairEncoding::Merging {
 public:
  Merging(const BytePairEncoding& encoding, absl::string_view piece)
      : encoding_(encoding) {
    const size_t count = piece.size();
    parts_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<uint8_t>(piece[i]);
      parts_.push_back({encoding.bytes_[byte], i == 0 ? kNone : i - 1,
                        i + 1 == count ? kNone : i + 1});
    }
  }

  void Run() {
    for (size_t i = 0; i < parts_.size(); ++i) Note(i, &waiting_);
    std::make_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    while (!waiting_.empty()) {
      std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
      const Candidate first = waiting_.back();
      waiting_.pop_back();
      if (IsStill(first)) Join(first);
    }
  }

  void AppendTo(std::vector<uint32_t>* tokens) const {
    for (const Part& part : parts_) {
      if (!part.gone) tokens->push_back(part.token);
    }
  }

 private:
  bool Note(size_t left, std::vector<Candidate>* candidates) const {
    if (left == kNone || parts_[left].after == kNone) return false;
    const Part& part = parts_[left];
    const Ranked* const merge =
        encoding_.Find(part.token, parts_[part.after].token);
    if (merge == nullptr) return false;
    candidates->push_back({merge->rank, left, merge->merged});
    return true;
  }

  void Wait(size_t left) {
    if (!Note(left, &waiting_)) return;
    std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
  }

  bool IsStill(const Candidate& candidate) const {
    const Part& part = parts_[candidate.left];
    if (part.gone || part.after == kNone) return false;
    const Ranked* const merge =
        encoding_.Find(part.token, parts_[part.after].token);
    return merge != nullptr && merge->rank == candidate.rank;
  }

  void Join(const Candidate& candidate) {
    Part& part = parts_[candidate.left];
    Part& gone = parts_[part.after];
    part.token = candidate.merged;
    part.after = gone.after;
    gone.gone = true;
    if (part.after != kNone) parts_[part.after].before = candidate.left;
    Wait(part.before);
    Wait(candidate.left);
  }

  const BytePairEncoding& encoding_;
  std::vector<Part> parts_;
  std::vector<Candidate> waiting_;  // a heap, the most urgent first
};

BytePairEncoding::BytePairEncoding(const std::array<uint32_t, 256>& bytes,
                                   absl::Span<const Merge> merges)
    : bytes_(bytes) {
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  for (const Merge& merge : merges) {
    merges_[PairKey(merge.left, merge.right)] = {rank++, merge.merged};
  }
}

const BytePairEncoding::Ranked* BytePairEncoding::Find(uint32_t left,
                                                       uint32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairEncoding::Encode(absl::string_view piece,
                              std::vector<uint32_t>* tokens) const {
  Merging merging(*this, piece);
  merging.Run();
  merging.AppendTo(tokens);
}

}  // namespace tandem
