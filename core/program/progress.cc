#include "core/program/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kBarInterval(100);
constexpr std::chrono::seconds kLineInterval(5);
constexpr int kBarWidth = 24;

int64_t Share(int64_t whole, int64_t done, int64_t total) {
  if (total <= 0) return whole;
  const double share =
      static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  return static_cast<int64_t>(static_cast<double>(whole) * share);
}

// "488/938", "1.2/99.9 MB".
std::string Amount(const ProgressState& state) {
  if (state.unit == ProgressUnit::kParts) {
    return absl::StrCat(state.done, "/", state.total);
  }
  return absl::StrFormat("%.1f/%.1f MB", 1e-6 * static_cast<double>(state.done),
                         1e-6 * static_cast<double>(state.total));
}

// ", about 40 s left", ", about 6 min left": what an estimate is good for.
std::string About(absl::Duration left) {
  if (left <= absl::ZeroDuration()) return "";
  const double seconds = absl::ToDoubleSeconds(left);
  return seconds < 100 ? absl::StrFormat(", about %.0f s left", seconds)
                       : absl::StrFormat(", about %.0f min left", seconds / 60);
}

std::string Behind(const char* separator, const std::string& note) {
  return note.empty() ? "" : absl::StrCat(separator, note);
}

}  // namespace

std::string ProgressBar(const ProgressState& state) {
  const int64_t filled = Share(kBarWidth, state.done, state.total);
  std::string bar(static_cast<size_t>(filled), '=');
  if (filled < kBarWidth) bar += '>';
  bar.resize(kBarWidth, ' ');
  return absl::StrFormat("%s [%s] %3d%% %s%s%s", state.what, bar,
                         Share(100, state.done, state.total), Amount(state),
                         About(state.left), Behind(", ", state.note));
}

std::string ProgressLine(const ProgressState& state) {
  return absl::StrFormat("%s: %d%% (%s)%s%s", state.what,
                         Share(100, state.done, state.total), Amount(state),
                         About(state.left), Behind(": ", state.note));
}

Progress::Options Progress::ToStderr(ProgressUnit unit) {
  Options options;
  options.terminal = isatty(STDERR_FILENO) != 0;
  options.unit = unit;
  return options;
}

Progress::Progress(std::string what, int64_t total, const Options& options)
    : what_(std::move(what)),
      total_(total),
      options_(options),
      next_(options.start +
            (options.terminal ? Clock::duration(0) : kLineInterval)) {}

Progress::~Progress() { Clear(); }

// What is left takes as long as what is done.
absl::Duration Progress::Left(int64_t done, Clock::time_point now) const {
  if (done <= 0 || done >= total_) return absl::ZeroDuration();
  return absl::FromChrono(now - options_.start) *
         (static_cast<double>(total_ - done) / static_cast<double>(done));
}

void Progress::Show(int64_t done, const std::string& note,
                    Clock::time_point now) {
  const ProgressState state = {what_,           done, total_, options_.unit,
                               Left(done, now), note};
  if (options_.terminal) {
    // Carriage return and "erase to the end of the line".
    absl::FPrintF(options_.out, "\r%s\x1b[K", ProgressBar(state));
    drawn_ = true;
    next_ = now + kBarInterval;
  } else {
    absl::FPrintF(options_.out, "%s\n", ProgressLine(state));
    next_ = now + kLineInterval;
  }
  std::fflush(options_.out);
}

void Progress::Update(int64_t done, const std::string& note,
                      Clock::time_point now) {
  if (now >= next_) Show(done, note, now);
}

void Progress::BeginPart(const std::string& part, Clock::time_point now) {
  Show(begun_++, part, now);
}

void Progress::Clear() {
  if (!drawn_) return;
  absl::FPrintF(options_.out, "\r\x1b[K");
  std::fflush(options_.out);
  drawn_ = false;
  next_ = Clock::time_point();
}

}  // namespace tandem
