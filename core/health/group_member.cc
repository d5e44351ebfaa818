#include "core/health/group_member.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/short_list.h"

namespace tandem {

GroupMember MemberOfWhole(StorePtr store, int rank, int size,
                          std::string name) {
  GroupMember member;
  member.job = store;
  member.store = std::move(store);
  member.rank = rank;
  member.size = size;
  member.name = std::move(name);
  member.job_size = size;
  return member;
}

int GroupMember::NameOf(int group_rank) const {
  return rank_names.empty() ? group_rank : rank_names[group_rank];
}

std::vector<int> GroupMember::NamesOf(std::vector<int> ranks) const {
  for (int& each : ranks) each = NameOf(each);
  return ranks;
}

std::string GroupMember::Id() const {
  return absl::StrCat(name, "/", absl::StrJoin(rank_names, ","));
}

std::string GroupMember::ToString() const {
  if (rank_names.empty()) return absl::StrCat("rank ", rank, " of ", size);
  return absl::StrCat("rank ", NameOf(rank), " of {", ShortList(rank_names),
                      "}");
}

}  // namespace tandem
