// Host layout: which ranks are on which host.

#ifndef TANDEM_CORE_BACKEND_HOST_LAYOUT_H_
#define TANDEM_CORE_BACKEND_HOST_LAYOUT_H_

#include <string>
#include <vector>

namespace tandem {

struct HostLayout {
  explicit HostLayout(const std::vector<std::string>& host_of_rank);

  int host_count() const { return static_cast<int>(ranks.size()); }
  // In order of their first ranks, which are their leaders.
  std::vector<std::vector<int>> ranks;
  std::vector<int> host;   // of each rank
  std::vector<int> local;  // each rank's place among its host's
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_HOST_LAYOUT_H_
