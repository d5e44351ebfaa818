// Recompute context: what a function depends on beside its arguments, so that
// it can run again elsewhere and later and give the same; and buffers that the
// second run would change once more.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_RECOMPUTE_CONTEXT_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_RECOMPUTE_CONTEXT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/context/compute_context.h"
#include "core/device/memory_category.h"
#include "core/model/shared_statistics.h"
#include "core/precision/autocast.h"
#include "core/random/default_generator.h"

namespace tandem {

// What the thread that makes it is in, in that moment: autocast, the current
// device, what memory is for, and the compute context, which says where
// gradients of weights are left, too. And, in time, what is drawn, and which
// statistics are shared with other ranks.
class RecomputeContext {
 public:
  // `inputs`: the function's, whose type of device is what counts.
  RecomputeContext(const std::vector<at::Tensor>& inputs,
                   bool preserve_rng_state);

  // While it lives, the function runs for the first time, on the same thread.
  class Recording {
   public:
    explicit Recording(RecomputeContext* recompute);

   private:
    const KeptStatistics::Recording statistics_;
    std::optional<DrawRecord::Recording> draws_;
  };

  // While it lives, the function runs again, on any thread. Layers know that by
  // MicrobatchScope::Current()->is_recomputed; a loss that they add
  // (core/loss/loss_terms.h) counted the first time.
  class Scope {
   public:
    explicit Scope(const RecomputeContext& recompute);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::vector<AutocastState> autocast_before_;
    const bool caches_casts_before_;
    const c10::OptionalDeviceGuard device_;
    const MemoryCategoryScope category_;
    const ComputeContext::Scope context_;
    const KeptStatistics::Replay statistics_;
    std::optional<DrawRecord::Replay> draws_;
  };

 private:
  std::vector<AutocastState> autocast_;
  bool caches_casts_;
  std::optional<c10::Device> device_;
  MemoryCategory category_;
  ComputeContext context_;  // but for the sink
  std::weak_ptr<WeightGradientSink> sink_;
  KeptStatistics statistics_;
  std::optional<DrawRecord> draws_;
};

// While it lives, autocast computes casts of weights anew: one that is made
// without a graph is not to be found by who needs one.
class AutocastWithoutCache {
 public:
  AutocastWithoutCache();
  ~AutocastWithoutCache();
  AutocastWithoutCache(const AutocastWithoutCache&) = delete;
  AutocastWithoutCache& operator=(const AutocastWithoutCache&) = delete;

 private:
  const bool before_;
};

// When it goes, `buffers` hold what they held when it came. Autograd does not
// count that as a change. Throws c10::Error where there is no memory.
class KeptBuffers {
 public:
  explicit KeptBuffers(std::vector<at::Tensor> buffers);
  ~KeptBuffers();
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  const std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
};

// A context for CheckpointOptions::recompute_context in which `buffers` are
// kept; another one, which may be null, is around it.
std::function<std::shared_ptr<void>()> KeepingBuffers(
    std::vector<at::Tensor> buffers,
    std::function<std::shared_ptr<void>()> around = nullptr);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_RECOMPUTE_CONTEXT_H_
