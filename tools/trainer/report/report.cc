#include "tools/trainer/report/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"

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

using Json = nlohmann::ordered_json;

Report Report::Silent() { return Report(nullptr, {}); }

Report Report::Speaking(MetricsFile metrics, TensorBoardLog board) {
  return Report(std::make_unique<MetricsFile>(std::move(metrics)),
                std::move(board));
}

absl::Status Report::Begin(bool goes_on) {
  if (silent() || std::exchange(has_begun_, true)) return absl::OkStatus();
  if (!goes_on) {
    TANDEM_ASSIGN_OR_RETURN(const std::string earlier, metrics_->MoveEarlier());
    if (!earlier.empty()) {
      Say(absl::StrCat("--metrics_file was another job's, and is ", earlier,
                       " now"));
    }
  }
  TANDEM_RETURN_IF_ERROR(board_.Begin());
  NoteBoard(board_.WriteWaiting());
  for (const Json& event : std::exchange(waiting_, {})) WriteEvent(event);
  return absl::OkStatus();
}

void Report::Say(const std::string& line) {
  if (silent()) return;
  if (progress_ != nullptr) progress_->Clear();
  // A launcher forwards stderr, so that Clear may come after this line: a
  // terminal is told on stdout too to take the bar away.
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  // It may hold what others wrote: names of tensors, say.
  absl::PrintF("%s%s\n", terminal ? "\r\x1b[K" : "", PrintableLines(line));
  if (std::fflush(stdout) != 0 && !std::exchange(is_unheard_, true)) {
    std::fprintf(stderr,
                 "train: what is printed goes nowhere (%s); training goes on\n",
                 std::strerror(errno));
  }
}

void Report::ShowEvent(const char* name, const Json& fields) {
  // Seconds since 1970.
  const std::chrono::duration<double> now =
      std::chrono::system_clock::now().time_since_epoch();
  Json event = {{"event", name}, {"time", now.count()}};
  event.update(fields);
  WriteEvent(event);
}

void Report::WriteEvent(const Json& event) {
  if (!has_begun_) {
    waiting_.push_back(event);
    return;
  }
  const absl::Status written = metrics_->Write(event);
  if (!written.ok() && !std::exchange(misses_events_, true)) {
    Say(absl::StrCat("warning: ", written.message(),
                     "; training goes on, and events are missing there"));
  }
}

void Report::NoteBoard(const absl::Status& told) {
  if (told.ok() || std::exchange(misses_points_, true)) return;
  Say(absl::StrCat("warning: ", told.message(),
                   "; training goes on, and points are missing there"));
}

void Report::ShowSettings(const SettingValues& shown,
                          const SettingValues& all) {
  if (silent()) return;
  Say("settings");
  size_t width = 0;
  for (const auto& [name, value] : shown) width = std::max(width, name.size());
  for (const auto& [name, value] : shown) {
    Say(absl::StrFormat("  %-*s  %s", static_cast<int>(width), name,
                        ToText(value)));
  }
  Json fields = Json::object();
  for (const auto& [name, value] : all) {
    std::visit([&, key = name](const auto& typed) { fields[key] = typed; },
               value);
  }
  ShowEvent("settings", fields);
  NoteBoard(board_.AddSettings(all));
}

void Report::ShowStart(const Start& start) {
  if (silent()) return;
  Json fields = {{"job", start.job}, {"step", start.step}};
  if (!start.checkpoint.empty()) fields["checkpoint"] = start.checkpoint;
  ShowEvent("start", fields);
  std::optional<int64_t> drops_from;
  if (start.trains) {
    const bool is_new = start.step == 0 && start.checkpoint.empty();
    drops_from = is_new ? 0 : start.step + 1;
  }
  board_.StartAfter(start.step, drops_from);
}

void Report::StartProgress(const std::string& what, int64_t total) {
  EndProgress();
  if (silent()) return;
  progress_ = std::make_unique<Progress>(what, total, stderr,
                                         isatty(STDERR_FILENO) != 0);
}

void Report::ShowProgress(int64_t done, const std::string& note) {
  if (progress_ == nullptr) return;
  progress_->Update(done, note, Progress::Clock::now());
}

void Report::EndProgress() { progress_.reset(); }

void Report::ShowStep(const StepReport& step, int64_t steps_in_all) {
  if (silent()) return;
  Say(ReportLine(step, steps_in_all));
  ShowEvent("step", ReportFields(step));
  NoteBoard(board_.AddStep(step));
}

void Report::ShowSkippedStep(const SkippedStepReport& skipped) {
  if (silent()) return;
  Say(ReportLine(skipped));
  ShowEvent("skipped_step", ReportFields(skipped));
  NoteBoard(board_.AddSkippedStep(skipped));
}

void Report::ShowEvaluation(const EvaluationReport& evaluation) {
  if (silent()) return;
  Say(ReportLine(evaluation));
  ShowEvent("eval", ReportFields(evaluation));
  NoteBoard(board_.AddEvaluation(evaluation));
  NoteBoard(board_.Flush());
}

void Report::ShowSummary(const SummaryReport& summary) {
  if (silent()) return;
  EndProgress();
  for (const std::string& line : ReportLines(summary)) Say(line);
  ShowEvent("summary", ReportFields(summary));
  NoteBoard(board_.Flush());
}

void Report::ShowText(absl::string_view tag, absl::string_view markdown,
                      int64_t step) {
  if (silent()) return;
  Summary values;
  NoteBoard(values.AddText(tag, ReplaceInvalidUtf8(markdown)));
  NoteBoard(board_.Add(values, step));
}

void Report::ShowValues(const Summary& values, int64_t step) {
  if (silent()) return;
  NoteBoard(board_.Add(values, step));
}

}  // namespace tandem
