#include "core/model/last_pops.h"

#include <cstddef>
#include <set>

namespace tandem {

std::vector<std::vector<std::string>> LastPops(
    const std::vector<LayerLinks>& layers,
    const std::vector<std::string>& outgoing) {
  std::vector<std::vector<std::string>> last(layers.size());
  std::set<std::string> needed(outgoing.begin(), outgoing.end());
  for (size_t i = layers.size(); i-- > 0;) {
    // What was left under such a name before is another.
    for (const std::string& skip : layers[i].stash) needed.erase(skip);
    for (const std::string& skip : layers[i].pop) {
      if (needed.insert(skip).second) last[i].push_back(skip);
    }
  }
  return last;
}

}  // namespace tandem
