// An all-to-all of any sizes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/shm/chunks.h"
#include "core/shm/collectives.h"
#include "core/shm/memory/operation_names.h"

namespace tandem {
namespace {

// What one rank sends to another, and what it expects from that one. Every
// rank's slot begins with one for each rank, so that all see alike who differs.
struct Sizes {
  uint64_t sent = 0;
  uint64_t expected = 0;
};

constexpr size_t SizesBytes(size_t ranks) {
  return (ranks * sizeof(Sizes) + 63) / 64 * 64;
}

Sizes SizesIn(const std::byte* slot, int peer) {
  Sizes sizes;
  std::memcpy(&sizes, slot + peer * sizeof(Sizes), sizeof(Sizes));
  return sizes;
}

// Not chunks of one size: it goes on until no rank has anything to send.
class AllToAll : public ShmCollective {
 public:
  AllToAll(std::vector<ConstBytes> inputs, std::vector<MutableBytes> outputs)
      : inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        shares_(SizesBytes(inputs_.size())),
        share_((kSlotBytes - shares_) / inputs_.size() / 64 * 64) {
    for (const ConstBytes& input : inputs_) bytes_ += input.size;
  }

  void Begin(ShmRounds& rounds) override {
    std::byte* const slot = rounds.NextSlot();
    size_t longest = 0;  // of what goes to others
    for (size_t r = 0; r < inputs_.size(); ++r) {
      const ConstBytes& input = inputs_[r];
      const Sizes sizes = {input.size, outputs_[r].size};
      std::memcpy(slot + r * sizeof(Sizes), &sizes, sizeof(Sizes));
      if (static_cast<int>(r) == rounds.rank()) continue;
      longest = std::max(longest, input.size);
      const size_t from = std::min(begin_, input.size);
      CopyBytes(slot + shares_ + r * share_, input.data + from,
                std::min(share_, input.size - from));
    }
    ShmNote note;
    note.operation = static_cast<uint32_t>(ShmOp::kAllToAll);
    note.dtype = static_cast<int32_t>(inputs_[0].dtype);
    note.more = begin_ + share_ < longest ? 1 : 0;
    rounds.Arrive(note);
  }

  absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) override {
    for (bool more = true;;) {
      TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
      const int me = rounds.rank();
      if (begin_ == 0) {
        TANDEM_RETURN_IF_ERROR(CheckSizes(rounds));
        CopyBytes(outputs_[me].data, inputs_[me].data, inputs_[me].size);
      }
      more = false;
      for (int r = 0; r < rounds.size(); ++r) {
        more |= rounds.note(r).more != 0;
        if (r == me) continue;
        const MutableBytes& output = outputs_[r];
        const size_t from = std::min(begin_, output.size);
        CopyBytes(output.data + from, rounds.Slot(r) + shares_ + me * share_,
                  std::min(share_, output.size - from));
      }
      begin_ += share_;
      if (!more) return absl::OkStatus();
      Begin(rounds);
    }
  }

  bool begins_cheaply() const override { return bytes_ <= kSmallBytes; }
  bool is_long() const override { return bytes_ > ShmChunked::kLongBytes; }

 private:
  static absl::Status CheckSizes(const ShmRounds& rounds) {
    for (int from = 0; from < rounds.size(); ++from) {
      for (int to = 0; to < rounds.size(); ++to) {
        const uint64_t sent = SizesIn(rounds.Slot(from), to).sent;
        const uint64_t expected = SizesIn(rounds.Slot(to), from).expected;
        if (sent == expected) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "in an all-to-all rank ", rounds.name(from), " sends ", sent,
            " bytes to rank ", rounds.name(to), ", which expects ", expected));
      }
    }
    return absl::OkStatus();
  }

  const std::vector<ConstBytes> inputs_;
  const std::vector<MutableBytes> outputs_;
  const size_t shares_;  // where they begin in a slot, one for each rank
  const size_t share_;
  size_t bytes_ = 0;
  size_t begin_ = 0;
};

}  // namespace

ShmCollectivePtr MakeAllToAll(std::vector<ConstBytes> inputs,
                              std::vector<MutableBytes> outputs) {
  return std::make_unique<AllToAll>(std::move(inputs), std::move(outputs));
}

}  // namespace tandem
