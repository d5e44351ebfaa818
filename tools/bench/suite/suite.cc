#include "tools/bench/suite/suite.h"

#include <cstdio>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

namespace {

// "40 s", "6 min": what an estimate is good for.
std::string About(absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  if (seconds < 100) return absl::StrFormat("%.0f s", seconds);
  return absl::StrFormat("%.0f min", seconds / 60);
}

}  // namespace

void BenchProgress::Begin(absl::string_view what, Clock::time_point now) {
  ++begun_;
  absl::FPrintF(
      stderr, "%s\n",
      ProgressLine(begun_, parts_, absl::FromChrono(now - start_), what));
}

std::string ProgressLine(int part, int parts, absl::Duration past,
                         absl::string_view what) {
  std::string left;
  if (const int done = part - 1; done > 0) {
    left =
        absl::StrCat(", about ", About(past / done * (parts - done)), " left");
  }
  return absl::StrCat(part, " of ", parts, left, ": ", what);
}

}  // namespace tandem
