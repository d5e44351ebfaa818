// Shared batch statistics (SyncBatchNorm): those of all ranks' samples, which a
// normalising layer asks for in place of its own samples'.

#ifndef TANDEM_CORE_MODEL_SHARED_STATISTICS_H_
#define TANDEM_CORE_MODEL_SHARED_STATISTICS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/context/compute_context.h"

namespace tandem {

// Gathered batch statistics: mean and variance of a normalising layer's values,
// put together from parts (microbatches, ranks), and what running statistics
// take in of them.

// Tensors are [channels], double; undefined where there are no values.
struct GatheredStatistics {
  int64_t count = 0;  // values a channel
  at::Tensor mean;
  at::Tensor squares;  // of the distances from the mean, their sum
};

// Chan, Golub, LeVeque: "Updating Formulae and a Pairwise Algorithm for
// Computing Sample Variances", 1979. The bits depend on the order of parts.
void Add(const GatheredStatistics& part, GatheredStatistics* sum);

// running = (1 - momentum) * running + momentum * now; a mean over all batches
// without a momentum (PyTorch's BatchNorm). Counts the batch. Computed in
// double.
void UpdateRunningStatistics(const at::Tensor& mean,
                             const at::Tensor& unbiased_variance,
                             std::optional<double> momentum,
                             at::Tensor& running_mean, at::Tensor& running_var,
                             at::Tensor& num_batches_tracked);

struct SharedStatistics {
  int64_t count = 0;  // values a channel, of all ranks
  // [channels], double, on the CPU; the variance is biased. Undefined where
  // count is 0.
  at::Tensor mean, variance;
};

class SharesStatistics;

// The ranks whose samples are normalised together. Both calls are collective,
// the second one in its backward; errors are LibTorch's, as a layer's are
// (parallel/sync_batch_norm/synchronised_statistics.h).
class StatisticsGroup {
 public:
  virtual ~StatisticsGroup() = default;

  // Statistics of x [n, channels, ...] and of what the others have for the same
  // layer; n may be 0. Where it is computed again
  // (KeptStatistics), those of the first time.
  virtual SharedStatistics Share(const at::Tensor& x,
                                 const SharesStatistics& layer) = 0;

  // x normalised, times weight plus bias (undefined: neither); differentiable.
  virtual at::Tensor Normalise(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, double eps,
                               const SharedStatistics& statistics) = 0;
};

// A torch::nn::Module that derives from this, too, normalises by the samples of
// a group, in training, where it is given one.
class SharesStatistics {
 public:
  virtual ~SharesStatistics() = default;

  // Null: by its own samples.
  virtual void set_statistics_group(std::shared_ptr<StatisticsGroup> group) = 0;
  virtual bool has_statistics_group() const = 0;

  // Its running statistics take in those of samples of which none are here.
  virtual void TakeIn(const SharedStatistics& statistics) = 0;

  // [0, channels], on the layer's device.
  virtual at::Tensor NoSamples() const = 0;
};

// The same with statistics of all ranks. Where there was nothing, nothing
// changes.
void UpdateRunningStatistics(const SharedStatistics& now,
                             std::optional<double> momentum,
                             at::Tensor& running_mean, at::Tensor& running_var,
                             at::Tensor& num_batches_tracked);

// Kept statistics: those that layers shared over ranks (SyncBatchNorm) in a
// pass that is computed again for backward, to be used once more there. Other
// ranks need not compute again, or not then: the second pass has no
// collective. Used by one thread at a time.
class KeptStatistics {
 public:
  using Recording = StatisticsRecording;
  using Replay = StatisticsReplay;

  // In a Replay the next one, else nothing. Throws c10::Error when the first
  // pass had no more.
  static std::optional<SharedStatistics> Next();
  // For the recordings that the calling thread is in.
  static void Note(const SharedStatistics& statistics);

 private:
  std::vector<SharedStatistics> all_;
};

// While it lives, what the calling thread's layers share is kept. Nests.
class StatisticsRecording {
 public:
  explicit StatisticsRecording(KeptStatistics* kept);
  StatisticsRecording(const StatisticsRecording&) = delete;
  StatisticsRecording& operator=(const StatisticsRecording&) = delete;

 private:
  friend class KeptStatistics;
  KeptStatistics* const kept_;
  StatisticsRecording* const outer_;
  const ComputeContext::Scope scope_;
};

// While it lives, they get the same again, in the same order. Recordings around
// it are none of its passes'; those within it keep what they get.
class StatisticsReplay {
 public:
  explicit StatisticsReplay(const KeptStatistics* kept);
  StatisticsReplay(const StatisticsReplay&) = delete;
  StatisticsReplay& operator=(const StatisticsReplay&) = delete;

 private:
  friend class KeptStatistics;
  const KeptStatistics* const kept_;
  size_t next_ = 0;
  const ComputeContext::Scope scope_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_SHARED_STATISTICS_H_
