// Which rank of which group this is.

#ifndef TANDEM_CORE_GROUP_MEMBER_H_
#define TANDEM_CORE_GROUP_MEMBER_H_

#include <string>
#include <vector>

#include "core/store.h"

namespace tandem {

struct GroupMember {
  StorePtr store;  // keys of this group alone
  int rank = 0;
  int size = 1;
  std::string name;
  // What messages call the ranks: the job's numbers for those of a subgroup.
  // Empty: as they count here.
  std::vector<int> rank_names;

  int NameOf(int its_rank) const;
  std::vector<int> NamesOf(std::vector<int> ranks) const;
  // "rank 1 of 4"; in a subgroup "rank 3 of {1, 3}".
  std::string ToString() const;
};

}  // namespace tandem

#endif  // TANDEM_CORE_GROUP_MEMBER_H_
