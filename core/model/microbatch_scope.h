// Microbatch scope: which microbatch of a mini-batch is being computed, for
// layers that gather something over all of them (BatchNorm's running
// statistics).

#ifndef TANDEM_CORE_MODEL_MICROBATCH_SCOPE_H_
#define TANDEM_CORE_MODEL_MICROBATCH_SCOPE_H_

#include <optional>

namespace tandem {

class StatisticsRecords;

struct Microbatch {
  int index = 0;  // they may come in any order
  int count = 1;
  // It has been computed before, and is again because its activations were not
  // kept (activation checkpointing): nothing is to be gathered a second time.
  bool is_recomputed = false;
  // Running statistics are to be those of the whole mini-batch
  // (torchgpipe's DeferredBatchNorm), not of each microbatch in turn.
  bool defers_statistics = false;
  // Running statistics are left alone, and what this microbatch would add to
  // them goes here (core/model/statistics_records.h). Excludes
  // defers_statistics.
  StatisticsRecords* records = nullptr;
};

// While it lives, layers that the calling thread runs compute `microbatch`.
// Scopes nest.
class MicrobatchScope {
 public:
  explicit MicrobatchScope(const Microbatch& microbatch);
  ~MicrobatchScope();
  MicrobatchScope(const MicrobatchScope&) = delete;
  MicrobatchScope& operator=(const MicrobatchScope&) = delete;

  // Of the calling thread's innermost scope; none outside of all: a batch as a
  // whole.
  static std::optional<Microbatch> Current();

 private:
  std::optional<Microbatch> outer_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_MICROBATCH_SCOPE_H_
