// Report of `doctor`: every finding about a machine and a job, in words or as
// JSON.

#ifndef TANDEM_TOOLS_DIAGNOSIS_REPORT_H_
#define TANDEM_TOOLS_DIAGNOSIS_REPORT_H_

#include <string>

#include "tools/diagnosis/facts.h"

namespace tandem {

// By every check of this room.
Findings AllFindings(const Facts& facts, const PlannedJob& job);

// Does anything stop the job?
bool IsStopped(const Findings& findings);

// A line for each finding, and one with the fix below those that have one; at
// the end what it comes to.
std::string ReportText(const Findings& findings, const PlannedJob& job);

// {"job": {...}, "stopped": false, "findings": [{"severity": "fine"|"slow"|
// "stopped", "subject", "what", "fix"}, ...]}, with a newline at its end.
std::string ReportJson(const Findings& findings, const PlannedJob& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_DIAGNOSIS_REPORT_H_
