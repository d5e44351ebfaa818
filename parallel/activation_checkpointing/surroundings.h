// Surroundings of a function: what it depends on beside its arguments, so that
// it can run again elsewhere and later and give the same.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SURROUNDINGS_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SURROUNDINGS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/context/compute_context.h"
#include "core/device/memory_category.h"
#include "core/model/kept_statistics.h"
#include "core/precision/autocast.h"
#include "core/random/draws.h"

namespace tandem {

// What the thread that makes it is in, in that moment: autocast, the current
// device, what memory is for, and the compute context, which says where
// gradients of weights are left, too. And, in time, what is drawn, and which
// statistics are shared with other ranks.
class Surroundings {
 public:
  // `inputs`: the function's, whose type of device is what counts.
  Surroundings(const std::vector<at::Tensor>& inputs, bool preserve_rng_state);

  // While it lives, the function runs for the first time, on the same thread.
  class First {
   public:
    explicit First(Surroundings* surroundings);

   private:
    const KeptStatistics::Recording statistics_;
    std::optional<DrawRecord::Recording> draws_;
  };

  // While it lives, the function runs again, on any thread. Layers know that by
  // MicrobatchScope::Current()->is_recomputed; a loss that they add
  // (core/loss/loss_terms.h) counted the first time.
  class Again {
   public:
    explicit Again(const Surroundings& surroundings);
    ~Again();
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;

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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SURROUNDINGS_H_
