// Flags of //tools:bench, one list for all suites.

#ifndef TANDEM_TOOLS_BENCH_SUITE_FLAGS_H_
#define TANDEM_TOOLS_BENCH_SUITE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// Their values, by their names (flags.def says what they are).
struct BenchFlags {
#define BENCH_FLAG(type, name, usual, suites, help) type name = usual;
#include "tools/bench/suite/flags.def"
};

// What the command line gave, once it is parsed.
BenchFlags BenchFlagsGiven();

// InvalidArgument names a flag that was given, though this suite does not take
// it.
absl::Status CheckSuiteFlags(const std::string& suite);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SUITE_FLAGS_H_
