#include "tools/trainer/report/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kBarInterval(100);
constexpr std::chrono::seconds kLineInterval(5);
constexpr int kBarWidth = 24;

int64_t Share(int64_t whole, int64_t done, int64_t total) {
  return total > 0 ? whole * std::min(done, total) / total : whole;
}

}  // namespace

std::string ProgressBar(const std::string& what, int64_t done, int64_t total,
                        const std::string& note) {
  const int64_t filled = Share(kBarWidth, done, total);
  std::string bar(filled, '=');
  if (filled < kBarWidth) bar += '>';
  bar.resize(kBarWidth, ' ');
  return absl::StrFormat("%s [%s] %3d%% %d/%d %s", what, bar,
                         Share(100, done, total), done, total, note);
}

Progress::Progress(std::string what, int64_t total, std::FILE* out,
                   bool terminal)
    : what_(std::move(what)),
      total_(total),
      out_(out),
      terminal_(terminal),
      next_(Clock::now() + (terminal ? Clock::duration(0) : kLineInterval)) {}

Progress::~Progress() { Clear(); }

void Progress::Update(int64_t done, const std::string& note,
                      Clock::time_point now) {
  if (now < next_) return;
  if (terminal_) {
    // Carriage return and "erase to the end of the line".
    absl::FPrintF(out_, "\r%s\x1b[K", ProgressBar(what_, done, total_, note));
    drawn_ = true;
    next_ = now + kBarInterval;
  } else {
    absl::FPrintF(out_, "%s: %d%% (%d/%d) %s\n", what_,
                  Share(100, done, total_), done, total_, note);
    next_ = now + kLineInterval;
  }
  std::fflush(out_);
}

void Progress::Clear() {
  if (!drawn_) return;
  absl::FPrintF(out_, "\r\x1b[K");
  std::fflush(out_);
  drawn_ = false;
  next_ = Clock::time_point();
}

}  // namespace tandem
