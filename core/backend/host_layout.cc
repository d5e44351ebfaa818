#include "core/backend/host_layout.h"

#include <cstddef>
#include <map>

namespace tandem {

HostLayout::HostLayout(const std::vector<std::string>& host_of_rank) {
  std::map<std::string, int> number;
  for (size_t r = 0; r < host_of_rank.size(); ++r) {
    const int next = static_cast<int>(number.size());
    const int h = number.try_emplace(host_of_rank[r], next).first->second;
    if (h == next) ranks.emplace_back();
    host.push_back(h);
    local.push_back(static_cast<int>(ranks[h].size()));
    ranks[h].push_back(static_cast<int>(r));
  }
}

}  // namespace tandem
