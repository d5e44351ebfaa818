// Compute context: what the layers of the calling thread compute, and where
// that goes which they leave beside their outputs. Who runs layers says it once
// (a pipeline's stage, a checkpointed function that runs again); layers ask.

#ifndef TANDEM_CORE_CONTEXT_COMPUTE_CONTEXT_H_
#define TANDEM_CORE_CONTEXT_COMPUTE_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"

namespace tandem {

class LossTerms;            // core/loss/loss_terms.h
class StatisticsRecording;  // core/model/kept_statistics.h
class StatisticsRecords;    // core/model/statistics_records.h
class StatisticsReplay;     // core/model/kept_statistics.h
class WeightGradientSink;   // core/model/weight_gradient_sink.h

// Rows of what a layer computes on are samples first, first + 1, ... of the
// global batch of step `step`.
struct Samples {
  uint64_t seed = 0;  // the job's
  int64_t step = 0;
  int64_t first = 0;
};

// One microbatch of a mini-batch.
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

struct ComputeContext {
  class Scope;

  // What random numbers are a function of (core/random/sample_scope.h).
  std::optional<Samples> samples;
  // Nothing: a batch as a whole (core/model/microbatch_scope.h).
  std::optional<Microbatch> microbatch;
  // Where gradients of weights are left for later; null: nowhere.
  std::shared_ptr<WeightGradientSink> sink;
  // Where losses and sums are added; null: nowhere.
  LossTerms* terms = nullptr;
  // Where statistics that ranks share are kept, and from where they are taken
  // again; null: nowhere.
  StatisticsRecording* recording = nullptr;
  StatisticsReplay* replay = nullptr;

  // The calling thread's. Outside of all scopes all is as above.
  static ComputeContext& Current();
};

// While it lives, the calling thread's context is as `change`, which is given
// the one around, has changed it. Scopes nest, and end in the reverse of the
// order in which they began.
class ComputeContext::Scope {
 public:
  explicit Scope(absl::FunctionRef<void(ComputeContext& context)> change)
      : outer_(Current()) {
    change(Current());
  }
  ~Scope() { Current() = std::move(outer_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  ComputeContext outer_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_CONTEXT_COMPUTE_CONTEXT_H_
