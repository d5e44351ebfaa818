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
using Json = nlohmann::ordered_json;

namespace {

Json ToJson(const SettingValues& values) {
  Json fields = Json::object();
  for (const auto& [name, value] : values) {
    std::visit([&, key = name](const auto& typed) { fields[key] = typed; },
               value);
  }
  return fields;
}

}  // namespace

Report Report::Silent() { return Report(); }

Report Report::Speaking(MetricsFile metrics, RunPage page,
                        TensorBoardLog board) {
  return Report(std::move(metrics), std::move(page), std::move(board));
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
  if (goes_on) page_->NoteEarlier(metrics_->path());
  TANDEM_RETURN_IF_ERROR(board_.Begin());
  NoteBoard(board_.WriteWaiting());
  for (const Json& event : std::exchange(waiting_, {})) WriteEvent(event);
  TellPrometheus(&PrometheusFile::Write);
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
  page_->Note(event);
  const absl::Status written = metrics_->Write(event);
  if (!written.ok() && !std::exchange(misses_events_, true)) {
    Say(absl::StrCat("warning: ", written.message(),
                     "; training goes on, and events are missing there"));
  }
}

void Report::TellPrometheus(
    absl::Status (PrometheusFile::*write)(PrometheusFile::Clock::time_point)) {
  if (prometheus_ == nullptr || !has_begun_) return;
  const absl::Status written =
      ((*prometheus_).*write)(PrometheusFile::Clock::now());
  if (!written.ok() && !std::exchange(misses_prometheus_, true)) {
    Say(absl::StrCat("warning: ", written.message(),
                     "; training goes on, and that file is of earlier"));
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
  ShowEvent("settings", ToJson(all));
  NoteBoard(board_.AddSettings(all));
}

void Report::ShowEnvironment(const SettingValues& environment) {
  if (!silent()) ShowEvent("environment", ToJson(environment));
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
  progress_ = std::make_unique<Progress>(what, total, Progress::ToStderr());
}

void Report::ShowProgress(int64_t done, const std::string& note) {
  if (progress_ != nullptr) progress_->Update(done, note);
}

void Report::EndProgress() { progress_.reset(); }

void Report::ShowStep(const StepReport& step, int64_t steps_in_all) {
  if (silent()) return;
  Say(ReportLine(step, steps_in_all));
  ShowEvent("step", ReportFields(step));
  if (prometheus_ != nullptr) prometheus_->Note(step);
  TellPrometheus(&PrometheusFile::WriteIfDue);
  NoteBoard(board_.AddStep(step));
}

void Report::ShowSkippedStep(const SkippedStepReport& skipped) {
  if (silent()) return;
  Say(ReportLine(skipped));
  ShowEvent("skipped_step", ReportFields(skipped));
  if (prometheus_ != nullptr) prometheus_->Note(skipped);
  NoteBoard(board_.AddSkippedStep(skipped));
}

void Report::ShowEvaluation(const EvaluationReport& evaluation) {
  if (silent()) return;
  Say(ReportLine(evaluation));
  ShowEvent("eval", ReportFields(evaluation));
  if (prometheus_ != nullptr) prometheus_->Note(evaluation);
  TellPrometheus(&PrometheusFile::WriteIfDue);
  NoteBoard(board_.AddEvaluation(evaluation));
  NoteBoard(board_.Flush());
}

void Report::ShowSample(const SampleReport& sample) {
  if (silent()) return;
  for (const std::string& line : ReportLines(sample)) Say(line);
  ShowEvent("sample", ReportFields(sample));
  ShowText("sample", sample.text, sample.step);
}

void Report::ShowSummary(const SummaryReport& summary) {
  if (silent()) return;
  EndProgress();
  for (const std::string& line : ReportLines(summary)) Say(line);
  ShowEvent("summary", ReportFields(summary));
  TellPrometheus(&PrometheusFile::Write);
  NoteBoard(board_.Flush());
}

absl::Status Report::WritePage(const absl::Status& ended) {
  if (silent() || !has_begun_ || page_->path().empty()) return ended;
  const absl::Status written = page_->Write();
  if (written.ok()) {
    Say(absl::StrCat("report in ", page_->path()));
  } else if (!ended.ok()) {
    Say(absl::StrCat("warning: ", written.message()));
  }
  return ended.ok() ? written : ended;
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
