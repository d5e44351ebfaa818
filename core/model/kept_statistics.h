// Kept statistics: those that layers shared over ranks (SyncBatchNorm) in a
// pass that is computed again for backward, to be used once more there.

#ifndef TANDEM_CORE_MODEL_KEPT_STATISTICS_H_
#define TANDEM_CORE_MODEL_KEPT_STATISTICS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "core/model/shared_statistics.h"

namespace tandem {

// Other ranks need not compute again, or not then: the second pass has no
// collective. Used by one thread at a time.
class KeptStatistics {
 public:
  // While it lives, what the calling thread's layers share is kept. Nests.
  class Recording {
   public:
    explicit Recording(KeptStatistics* kept);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    friend class KeptStatistics;
    KeptStatistics* const kept_;
    Recording* const outer_;
  };

  // While it lives, they get the same again, in the same order. Recordings
  // around it are none of its passes'; those within it keep what they get.
  class Replay {
   public:
    explicit Replay(const KeptStatistics* kept);
    ~Replay();
    Replay(const Replay&) = delete;
    Replay& operator=(const Replay&) = delete;

   private:
    friend class KeptStatistics;
    const KeptStatistics* const kept_;
    Replay* const outer_;
    Recording* const recording_;
    size_t next_ = 0;
  };

  // In a Replay the next one, else nothing. Throws c10::Error when the first
  // pass had no more.
  static std::optional<SharedStatistics> Next();
  // For the recordings that the calling thread is in.
  static void Note(const SharedStatistics& statistics);

 private:
  std::vector<SharedStatistics> all_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_KEPT_STATISTICS_H_
