// Metrics files (tools/report/run_log.h), and the pages that are made of them.

#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/tools/report/well_formed.h"
#include "tools/report/report_page.h"
#include "tools/report/run_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::RunLogReader reader;
  for (const absl::string_view line :
       absl::StrSplit(tandem::InputText(data, size), '\n')) {
    reader.Add(line);
  }
  for (const auto& runs :
       {std::vector<tandem::RunLog>{reader.log()},
        std::vector<tandem::RunLog>{reader.log(), tandem::RunLog()}}) {
    const std::string error = tandem::MarkupError(tandem::ReportPage(runs));
    CHECK(error.empty()) << error;
  }
  return 0;
}
