// A finding of `doctor`: what is so, what it means for a job, and the fix.

#ifndef TANDEM_TOOLS_DIAGNOSIS_FINDING_H_
#define TANDEM_TOOLS_DIAGNOSIS_FINDING_H_

#include <string>
#include <vector>

namespace tandem {

enum class Severity {
  kFine,     // nothing to do
  kSlow,     // a job runs, slower or shorter than it could
  kStopped,  // the job that is asked about does not run
};

struct Finding {
  Severity severity = Severity::kFine;
  std::string subject;  // "driver", "shared memory": a word or two
  std::string what;     // a sentence without its full stop
  std::string fix;      // what to do; empty where all is fine
};

using Findings = std::vector<Finding>;

}  // namespace tandem

#endif  // TANDEM_TOOLS_DIAGNOSIS_FINDING_H_
