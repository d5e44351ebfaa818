// Page style: the style sheet and the script of a report.

#ifndef TANDEM_TOOLS_REPORT_PAGE_STYLE_H_
#define TANDEM_TOOLS_REPORT_PAGE_STYLE_H_

#include <string>

namespace tandem {

// From <!DOCTYPE html> to <body>: a title, which is escaped, and the style, for
// light and dark, wide and narrow screens, and paper. The page may load nothing
// from anywhere, and of scripts run the one of PageEnd alone
// (Content-Security-Policy): whatever a log's names hold does nothing.
std::string PageBegin(const std::string& title);

// A script, which shows the values under the pointer and opens what is folded
// for paper: without it the page lacks nothing else. Then the end of all.
std::string PageEnd();

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_PAGE_STYLE_H_
