#include <algorithm>
#include <utility>

#include "core/shm_chunks.h"
#include "core/shm_collectives.h"
#include "core/shm_operation_names.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

// Not chunks of one size: it goes on until no rank has anything to send.
class AllToAll : public ShmCollective {
 public:
  AllToAll(std::vector<ConstBytes> inputs, std::vector<MutableBytes> outputs)
      : inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        share_(SharePerRank(inputs_.size())) {
    for (const ConstBytes& input : inputs_) {
      longest_ = std::max(longest_, input.size);
      bytes_ += input.size;
    }
  }

  void Begin(ShmRounds& rounds) override {
    for (size_t r = 0; r < inputs_.size(); ++r) {
      const ConstBytes& input = inputs_[r];
      const size_t from = std::min(begin_, input.size);
      CopyBytes(rounds.NextSlot() + r * share_, input.data + from,
                std::min(share_, input.size - from));
    }
    ShmNote note;
    note.operation = static_cast<uint32_t>(ShmOp::kAllToAll);
    note.more = begin_ + share_ < longest_ ? 1 : 0;
    rounds.Arrive(note);
  }

  absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) override {
    for (bool more = true;;) {
      TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
      more = false;
      for (int r = 0; r < rounds.size(); ++r) {
        more |= rounds.note(r).more != 0;
        const MutableBytes& output = outputs_[r];
        const size_t from = std::min(begin_, output.size);
        CopyBytes(output.data + from, rounds.Slot(r) + rounds.rank() * share_,
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
  const std::vector<ConstBytes> inputs_;
  const std::vector<MutableBytes> outputs_;
  const size_t share_;
  size_t longest_ = 0;
  size_t bytes_ = 0;
  size_t begin_ = 0;
};

}  // namespace

ShmCollectivePtr MakeAllToAll(std::vector<ConstBytes> inputs,
                              std::vector<MutableBytes> outputs) {
  return std::make_unique<AllToAll>(std::move(inputs), std::move(outputs));
}

}  // namespace tandem
