// Makes a page of training runs that are over, or side by side. --help.

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "tools/report/report_page.h"
#include "tools/report/run_log.h"
#include "tools/report/run_names.h"

ABSL_FLAG(std::string, output, "report.html", "File to write the page to.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Makes a page, one HTML file, of training runs: final numbers, curves,\n"
    "layout, settings; of several runs side by side. Each argument is a file\n"
    "that train --metrics_file=FILE wrote.\n"
    "\n"
    "  report metrics.jsonl\n"
    "  report runs/*/metrics.jsonl --output=runs.html\n";

absl::StatusOr<std::vector<RunLog>> ReadRuns(
    const std::vector<std::string>& paths) {
  if (paths.empty() || paths.size() > kMostReportedRuns) {
    return absl::InvalidArgumentError(absl::StrCat(
        paths.size(), " files were given: expected 1 to ", kMostReportedRuns,
        " that train --metrics_file=FILE wrote"));
  }
  const std::vector<std::string> names = RunNames(paths);
  std::vector<RunLog> runs;
  for (size_t i = 0; i < paths.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(runs.emplace_back(),
                            ReadRunLog(UserPath(paths[i])));
    runs.back().name = names[i];
  }
  return runs;
}

absl::Status Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                          ParseCommandLine(argc, argv, kUsage));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RunLog> runs, ReadRuns(paths));
  const std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) {
    return absl::InvalidArgumentError("--output= is empty: name a file");
  }
  TANDEM_RETURN_IF_ERROR(WriteOutputFile(UserPath(output), ReportPage(runs)));
  std::cerr << output << ": " << runs.size()
            << (runs.size() == 1 ? " run\n" : " runs\n");
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Conclude("report", tandem::Run(argc, argv));
}
