// Suites of //tools:bench: their flags, one list for all, and what each suite
// gives.

#ifndef TANDEM_TOOLS_BENCH_SUITE_SUITE_H_
#define TANDEM_TOOLS_BENCH_SUITE_SUITE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/suite/table.h"

namespace tandem {

// Values of the flags, by their names (flags.def says what they are).
struct BenchFlags {
#define BENCH_FLAG(type, name, usual, suites, help) type name = usual;
#include "tools/bench/suite/flags.def"
};

// What the command line gave, once it is parsed.
BenchFlags BenchFlagsGiven();

// InvalidArgument names a flag that was given, though this suite does not take
// it.
absl::Status CheckSuiteFlags(const std::string& suite);

struct SuiteReport {
  std::vector<Table> tables;
  // What went wrong although there are figures, for the exit code.
  absl::Status status = absl::OkStatus();
};

// Runs a suite with these flags, in a scratch folder. InvalidArgument names a
// flag whose value it does not take.
using RunSuite = absl::StatusOr<SuiteReport>(const BenchFlags& flags,
                                             const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SUITE_SUITE_H_
