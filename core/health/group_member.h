// Group member: which rank of which group this is.

#ifndef TANDEM_CORE_HEALTH_GROUP_MEMBER_H_
#define TANDEM_CORE_HEALTH_GROUP_MEMBER_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/store/store.h"

namespace tandem {

// The group of all ranks of a job, and its prefix on the job's store.
inline constexpr char kWorldName[] = "world";

struct GroupMember {
  StorePtr store;  // keys of this group alone
  int rank = 0;
  int size = 1;
  std::string name;
  // What messages call the ranks: the job's numbers for those of a subgroup.
  // Empty: as they count here.
  std::vector<int> rank_names;
  // Keys of the group of which this is a part, of the whole job or of this very
  // group, for notes that ranks of its other groups read; how many ranks it
  // has.
  StorePtr job;
  int job_size = 1;
  // What this rank's groups have in common that are parts of one another. Set
  // by any thread.
  struct Shared {
    // Has the store once not answered in time? Then no group of the job asks it
    // again: each would wait for seconds.
    std::atomic<bool> store_is_silent{false};
    // Calls of ReportFailure: with the last, this rank has heard of all.
    std::atomic<int> telling{0};
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();

  int NameOf(int group_rank) const;
  std::vector<int> NamesOf(std::vector<int> ranks) const;
  // Tells groups of one name apart: the name and the ranks.
  std::string Id() const;
  // "rank 1 of 4"; in a subgroup "rank 3 of {1, 3}".
  std::string ToString() const;
};

// Rank `rank` of a group of `size` ranks that is no part of another one.
GroupMember MemberOfWhole(StorePtr store, int rank, int size,
                          std::string name = kWorldName);

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_GROUP_MEMBER_H_
