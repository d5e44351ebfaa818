#include "parallel/pipeline/graphs/middle_microbatches.h"

namespace tandem {

std::set<int> MiddleMicrobatches(const std::vector<Action>& actions, int stage,
                                 int microbatches) {
  std::set<int> middle;
  std::set<int> special;
  std::set<ActionKind> seen;
  int last = -1;
  for (const Action& each : actions) {
    if (each.stage != stage || each.microbatch >= microbatches) continue;
    middle.insert(each.microbatch);
    if (seen.insert(each.kind).second) special.insert(each.microbatch);
    last = each.microbatch;
  }
  special.insert(last);
  for (const int each : special) middle.erase(each);
  return middle;
}

}  // namespace tandem
