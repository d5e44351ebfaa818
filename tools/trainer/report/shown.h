// Numbers as a person is shown them.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_SHOWN_H_
#define TANDEM_TOOLS_TRAINER_REPORT_SHOWN_H_

#include <cmath>

namespace tandem {

// Which sign a NaN has tells nobody anything: "nan", not "-nan".
inline double Shown(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_SHOWN_H_
