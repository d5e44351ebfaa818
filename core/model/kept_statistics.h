// Kept statistics: those that layers shared over ranks (SyncBatchNorm) in a
// pass that is computed again for backward, to be used once more there.

#ifndef TANDEM_CORE_MODEL_KEPT_STATISTICS_H_
#define TANDEM_CORE_MODEL_KEPT_STATISTICS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "core/context/compute_context.h"
#include "core/model/shared_statistics.h"

namespace tandem {

// Other ranks need not compute again, or not then: the second pass has no
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

#endif  // TANDEM_CORE_MODEL_KEPT_STATISTICS_H_
