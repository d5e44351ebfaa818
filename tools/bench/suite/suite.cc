#include "tools/bench/suite/suite.h"

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/program/command_line.h"

#define BENCH_FLAG(type, name, usual, suites, help) \
  ABSL_FLAG(type, name, usual, "(" suites ") " help);
#include "tools/bench/suite/flags.def"

namespace tandem {
namespace {

bool Takes(const std::string& suite, absl::string_view suites) {
  const std::vector<std::string> names = absl::StrSplit(suites, ", ");
  return suites == "all" || absl::c_linear_search(names, suite);
}

}  // namespace

BenchFlags BenchFlagsGiven() {
  BenchFlags flags;
#define BENCH_FLAG(type, name, usual, suites, help) \
  flags.name = absl::GetFlag(FLAGS_##name);
#include "tools/bench/suite/flags.def"
  return flags;
}

absl::Status CheckSuiteFlags(const std::string& suite) {
  std::vector<std::string> others;
#define BENCH_FLAG(type, name, usual, suites, help) \
  if (!Takes(suite, suites)) others.push_back(#name);
#include "tools/bench/suite/flags.def"
  return CheckUseless(others,
                      absl::StrCat("--suite=", suite, " does not take it"));
}

}  // namespace tandem
