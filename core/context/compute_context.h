// Compute context: what the layers of the calling thread compute, and where
// that goes which they leave beside their outputs. The code that runs layers
// says it once (a pipeline's stage, a checkpointed function that runs again);
// layers ask.

#ifndef TANDEM_CORE_CONTEXT_COMPUTE_CONTEXT_H_
#define TANDEM_CORE_CONTEXT_COMPUTE_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"

namespace tandem {

class LossTerms;            // core/loss/loss_terms.h
class StatisticsRecording;  // core/model/shared_statistics.h
class StatisticsRecords;    // core/model/statistics_records.h
class StatisticsReplay;     // core/model/shared_statistics.h
struct TensorParallel;      // core/model/axis/tensor_parallel.h
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

  // What random numbers are a function of (SampleScope).
  std::optional<Samples> samples;
  // Nothing: a batch as a whole (MicrobatchScope).
  std::optional<Microbatch> microbatch;
  // Where gradients of weights are left for later; null: nowhere.
  std::shared_ptr<WeightGradientSink> sink;
  // Where losses and sums are added; null: nowhere.
  LossTerms* terms = nullptr;
  // Where statistics that ranks share are kept, and from where they are taken
  // again; null: nowhere.
  StatisticsRecording* recording = nullptr;
  StatisticsReplay* replay = nullptr;
  // With whom layers that are made, and losses, are divided; null: with nobody.
  std::shared_ptr<const TensorParallel> tensor_parallel;

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

// Microbatch scope: while it lives, layers that the calling thread runs compute
// `microbatch`, for those that gather something over all microbatches of a
// mini-batch (BatchNorm's running statistics). Scopes nest.
class MicrobatchScope : public ComputeContext::Scope {
 public:
  explicit MicrobatchScope(const Microbatch& microbatch)
      : Scope([&](ComputeContext& context) {
          context.microbatch = microbatch;
        }) {}

  // The calling thread's; none outside of all scopes: a batch as a whole.
  static std::optional<Microbatch> Current() {
    return ComputeContext::Current().microbatch;
  }
};

// Sample scope: while it lives, layers that the calling thread runs compute
// `samples`. Random numbers in a layer (dropout) are a function of these and of
// the layer's name, so a layer that runs again, in another thread, or on
// another layout, draws the same. Scopes nest.
class SampleScope : public ComputeContext::Scope {
 public:
  explicit SampleScope(const Samples& samples)
      : Scope([&](ComputeContext& context) { context.samples = samples; }) {}

  // The calling thread's; none outside of all scopes.
  static std::optional<Samples> Current() {
    return ComputeContext::Current().samples;
  }
};

}  // namespace tandem

#endif  // TANDEM_CORE_CONTEXT_COMPUTE_CONTEXT_H_
