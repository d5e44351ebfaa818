// Chrome's Trace Event Format, read strictly: what Perfetto would leave out, or
// show elsewhere, is an error here. For tests.

#ifndef TANDEM_TESTS_CORE_TESTING_CHROME_TRACE_H_
#define TANDEM_TESTS_CORE_TESTING_CHROME_TRACE_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Times in microseconds.
struct ChromeSlice {
  int process = 0;
  std::string track;  // its thread's name
  std::string name;
  double begin = 0;
  double end = 0;
  int depth = 0;  // slices of its thread that it lies in
};

// The outermost slices in which it begins and ends.
struct ChromeFlow {
  ChromeSlice from;
  ChromeSlice to;
};

struct ChromeSample {
  int process = 0;
  std::string counter;
  double time = 0;
  std::map<std::string, double> values;  // by series
};

struct ChromeTrace {
  std::map<int, std::string> processes;  // their names
  std::vector<ChromeSlice> slices;       // moments among them
  std::vector<ChromeFlow> flows;
  std::vector<ChromeSample> samples;
  nlohmann::json ranks;  // what "otherData" says of them

  // In the order of the file.
  std::vector<std::string> SliceNames(int process,
                                      const std::string& track) const;
  std::vector<ChromeSlice> SlicesNamed(const std::string& name) const;
};

// InvalidArgument names the first event that is not as the format has it: every
// event has phase, process, thread, name and time; processes and threads have
// names; slices of a thread nest; a flow has a number of its own, one beginning
// and one end, which is later, each in a slice of its thread; values of
// counters are numbers, and their times ascend.
absl::StatusOr<ChromeTrace> ReadChromeTrace(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_CHROME_TRACE_H_
