#include "tools/bench/comparison.h"

#include "absl/strings/str_cat.h"

namespace tandem {

std::string FailureLine(const Comparison& comparison) {
  return absl::StrCat(comparison.name, " ", comparison.peer,
                      ": did not run: ", comparison.failure, "\n");
}

nlohmann::json FailureJson(const Comparison& comparison) {
  return {{"name", comparison.name},
          {"peer", comparison.peer},
          {"reason", comparison.failure}};
}

nlohmann::json FiguresJson(const Comparison& comparison) {
  const Ratio ratio = comparison.ratio();
  return {{"name", comparison.name},
          {"ours_ms", Median(comparison.ours_ms)},
          {"peer_ms", Median(comparison.peers_ms)},
          {"peer", comparison.peer},
          {"ratio", ratio.ratio},
          {"ratio_min", ratio.min},
          {"ratio_max", ratio.max}};
}

}  // namespace tandem
