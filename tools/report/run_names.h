// Run names: what runs are called side by side, by the files of their metrics.

#ifndef TANDEM_TOOLS_REPORT_RUN_NAMES_H_
#define TANDEM_TOOLS_REPORT_RUN_NAMES_H_

#include <string>
#include <vector>

namespace tandem {

// A name for each path, all different: as much of a path as tells it from the
// others, without what is the same at the ends of all: "a" and "b" of
// runs/a/metrics.jsonl and runs/b/metrics.jsonl, "wide" and "deep" of
// wide.jsonl and deep.jsonl. A path that is there twice gets a number.
std::vector<std::string> RunNames(const std::vector<std::string>& paths);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_RUN_NAMES_H_
