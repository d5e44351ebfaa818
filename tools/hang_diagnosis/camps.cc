#include "tools/hang_diagnosis/camps.h"

#include <algorithm>
#include <tuple>

namespace tandem {

size_t RightCamp(const JobHistory& history, const std::vector<Camp>& camps) {
  const auto merit = [&](const Camp& camp) {
    return std::make_tuple(
        history.HasDoneBefore(camp.ranks.front(), *camp.entries.front()),
        camp.ranks.size(), -camp.ranks.front());
  };
  const auto best = std::max_element(camps.begin(), camps.end(),
                                     [&](const Camp& one, const Camp& other) {
                                       return merit(one) < merit(other);
                                     });
  return static_cast<size_t>(best - camps.begin());
}

}  // namespace tandem
