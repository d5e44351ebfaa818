#include "core/shm/collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "core/base/status_macros.h"
#include "core/shm/chunks.h"
#include "core/shm/memory/operation_names.h"

namespace tandem {
namespace {

using Terms = absl::InlinedVector<const void*, 16>;

class Barrier : public ShmChunked {
 public:
  Barrier()
      : ShmChunked(NoteOf(ShmOp::kBarrier, ConstBytes()), 0, kSlotBytes) {}

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
      : ShmChunked(NoteOf(ShmOp::kScatter, output, root), output.size,
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
      : ShmChunked(NoteOf(ShmOp::kReduceScatter, output, reduction),
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
  return std::make_unique<Gather>(NoteOf(ShmOp::kAllGather, input), input,
                                  std::move(outputs));
}

ShmCollectivePtr MakeGather(ConstBytes input, std::vector<MutableBytes> outputs,
                            int root) {
  return std::make_unique<Gather>(NoteOf(ShmOp::kGather, input, root), input,
                                  std::move(outputs));
}

ShmCollectivePtr MakeScatter(std::vector<ConstBytes> inputs,
                             MutableBytes output, int root, int size) {
  return std::make_unique<Scatter>(std::move(inputs), output, root, size);
}

}  // namespace tandem
