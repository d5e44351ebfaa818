// Report page: training runs as one HTML file.

#ifndef TANDEM_TOOLS_REPORT_REPORT_PAGE_H_
#define TANDEM_TOOLS_REPORT_REPORT_PAGE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/run_log.h"

namespace tandem {

// More are no page to look at.
constexpr size_t kMostReportedRuns = 28;

// The page of one run, or of several side by side, at least one and at most
// kMostReportedRuns. It is all in one, needs no network and no script, and is
// well-formed XML; whatever runs and their settings are called is escaped, and
// sections for which there is nothing are left out. Of one run it is well below
// 1 MB, however many steps that had.
std::string ReportPage(const std::vector<RunLog>& runs);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_REPORT_PAGE_H_
