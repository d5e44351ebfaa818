#include "tools/bench/process/progress.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace tandem {
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
