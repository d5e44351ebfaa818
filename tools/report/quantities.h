// Quantities as a report shows them: three or four significant digits, with
// their units. Plain text, in UTF-8.

#ifndef TANDEM_TOOLS_REPORT_QUANTITIES_H_
#define TANDEM_TOOLS_REPORT_QUANTITIES_H_

#include <cstdint>
#include <string>

namespace tandem {

// "0.3469", "8554", "12.3 k", "1e-5"; "not finite".
std::string ShownNumber(double value);

// "88.14 %" of 0.8814.
std::string ShownPercent(double part);

// "937", "1 000 000" with narrow spaces that do not break.
std::string ShownCount(int64_t count);

// "7.5 ms", "12.3 s", "4 min 5 s", "2 h 31 min", "3 d 4 h".
std::string ShownSeconds(double seconds);

// "212 MiB", "1.5 GiB".
std::string ShownMebibytes(double mebibytes);

// "2026-11-30 02:49 UTC"; empty for 0.
std::string ShownDate(double seconds_since_1970);

// What stands at a tick of an axis, with all of its digits: "0.5", "200k",
// "5e-5".
std::string TickText(double value);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_QUANTITIES_H_
