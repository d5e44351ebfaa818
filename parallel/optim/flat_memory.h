// Flat memory: a flat tensor of which a rank keeps all, or a share for good and
// the rest for a while (FSDP's sharded and unsharded flat parameter).

#ifndef TANDEM_PARALLEL_OPTIM_FLAT_MEMORY_H_
#define TANDEM_PARALLEL_OPTIM_FLAT_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/device/memory_category.h"

namespace tandem {

// Elements [begin, end) of a flat buffer.
struct ElementSpan {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t length() const { return end - begin; }
};

// Views of whole() stay right when its memory comes and goes: they show what
// lies in whatever memory it has. While it has none, reading them throws
// c10::Error. Not thread-safe.
class FlatMemory {
 public:
  FlatMemory() = default;
  // `whole`: [size], with a storage of its own, whose memory counts as
  // `category`.
  FlatMemory(at::Tensor whole, MemoryCategory category);

  const at::Tensor& whole() const { return whole_; }
  // What is here for good: all of it, before Shard.
  const ElementSpan& own() const { return own_span_; }
  bool is_sharded() const { return own_.defined(); }
  // Elements of own(), where they are kept.
  at::Tensor Part(int64_t begin, int64_t end) const;
  at::Tensor Own() const { return Part(own_span_.begin, own_span_.end); }

  // Elements of `own` move to `memory`, [own.length()], and the whole's memory
  // goes. Requires that it is not sharded.
  void Shard(const ElementSpan& own, const at::Tensor& memory);

  bool has_whole() const { return has_whole_; }
  // The whole has memory, with anything in it. Requires that it has none.
  void TakeWhole();
  // It has none. Requires that it is sharded.
  void ReleaseWhole();

 private:
  at::Tensor whole_;
  MemoryCategory category_ = MemoryCategory::kOther;
  ElementSpan own_span_;
  at::Tensor own_;  // undefined: a part of the whole
  bool has_whole_ = true;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_FLAT_MEMORY_H_
