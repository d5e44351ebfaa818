// What tests look for in findings.

#ifndef TANDEM_TESTS_TOOLS_DIAGNOSIS_FINDINGS_H_
#define TANDEM_TESTS_TOOLS_DIAGNOSIS_FINDINGS_H_

#include <gmock/gmock.h>

#include <string>

#include "tools/diagnosis/facts.h"

namespace tandem {

// A finding of this severity whose `what` and `fix` have these texts.
MATCHER_P3(IsFinding, severity, what, fix, "") {
  return arg.severity == severity && arg.what.find(what) != std::string::npos &&
         arg.fix.find(fix) != std::string::npos;
}

inline void PrintTo(const Finding& finding, std::ostream* out) {
  *out << static_cast<int>(finding.severity) << " " << finding.subject << ": "
       << finding.what << "; " << finding.fix;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_TOOLS_DIAGNOSIS_FINDINGS_H_
