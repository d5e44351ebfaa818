#include "tools/report/run_log.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/regular_file.h"

namespace tandem {
namespace {

const ThinnedSeries* Find(const RunLog::Curves& curves,
                          const std::string& field) {
  const auto at = curves.find(field);
  return at == curves.end() || at->second.empty() ? nullptr : &at->second;
}

// Numbers of an event that are no measurement.
bool IsPosition(const std::string& field) {
  for (const char* each :
       {"time", "step", "epoch", "samples", "tokens", "count", "left_s"}) {
    if (field == each) return true;
  }
  return false;
}

}  // namespace

const ThinnedSeries* RunLog::Curve(const std::string& field) const {
  return Find(steps, field);
}

const ThinnedSeries* RunLog::EvaluationCurve(const std::string& field) const {
  return Find(evaluations, field);
}

void RunLogReader::Add(absl::string_view line) {
  ++lines_;
  if (line.find_first_not_of(" \t\r") == absl::string_view::npos) return;
  std::optional<Event> event;
  if (line.size() <= kLongestLine) event = ParseEvent(line);
  if (!event) {
    if (log_.unread_lines++ == 0) log_.first_unread = lines_;
    return;
  }
  ++log_.events;
  NoteTime(*event);
  if (event->name == "settings") {
    AddSettings(*event);
  } else if (event->name == "environment") {
    log_.environment = std::move(event->fields);
  } else if (event->name == "start") {
    AddStart(*event);
  } else if (event->name == "step") {
    AddStep(*event);
  } else if (event->name == "skipped_step") {
    log_.skipped_steps =
        std::max(log_.skipped_steps,
                 CountField(event->fields, "skipped_steps").value_or(0));
  } else if (event->name == "eval") {
    AddEvaluation(*event);
  } else if (event->name == "summary") {
    log_.summary = std::move(event->fields);
  }
}

void RunLogReader::AddWithoutEnd(absl::string_view line) {
  const int64_t before = log_.unread_lines;
  Add(line);
  log_.is_torn = log_.unread_lines > before;
}

// Between two processes of a job it does not run.
void RunLogReader::NoteTime(const Event& event) {
  const std::optional<double> time = NumberField(event.fields, "time");
  constexpr double kLatest = 1e11;  // the year 5138
  if (!time || !(*time >= 0 && *time < kLatest)) return;
  if (last_time_ && event.name != "settings" && *time > *last_time_) {
    log_.seconds += *time - *last_time_;
  }
  last_time_ = time;
  log_.ended = std::max(log_.ended, *time);
}

void RunLogReader::AddSettings(Event& event) {
  log_.settings = std::move(event.fields);
}

void RunLogReader::AddStart(const Event& event) {
  const int64_t step = CountField(event.fields, "step").value_or(0);
  if (step > 0) ++log_.resumes;
  log_.summary.clear();
  GoBackTo(step);
  log_.last_step = step;
}

void RunLogReader::GoBackTo(int64_t step) {
  if (log_.last_step <= step) return;
  log_.dropped_from = step;
  for (RunLog::Curves* curves : {&log_.steps, &log_.evaluations}) {
    for (auto& [field, curve] : *curves) {
      curve.DropAfter(static_cast<double>(step));
    }
  }
}

void RunLogReader::AddStep(const Event& event) {
  const std::optional<int64_t> step = CountField(event.fields, "step");
  if (!step) return;
  // Without a word it began again.
  if (*step <= log_.last_step && log_.Curve("loss") != nullptr) {
    GoBackTo(*step - 1);
  }
  log_.last_step = *step;
  AddPoints(event.fields, *step, &log_.steps);
}

void RunLogReader::AddEvaluation(Event& event) {
  const int64_t step =
      CountField(event.fields, "step").value_or(log_.last_step);
  AddPoints(event.fields, step, &log_.evaluations);
  log_.evaluation = std::move(event.fields);
}

void RunLogReader::AddPoints(const EventFields& fields, int64_t step,
                             RunLog::Curves* curves) {
  const auto x = static_cast<double>(step);
  for (const auto& [field, value] : fields) {
    const std::optional<double> number = FieldNumber(value);
    if (!number || IsPosition(field)) continue;
    auto at = curves->find(field);
    if (at == curves->end()) {
      if (curves->size() == RunLog::kMostCurves) continue;
      at = curves->emplace(field, ThinnedSeries()).first;
    }
    ThinnedSeries& curve = at->second;
    // A field that an event has twice, or a step that an evaluation is behind.
    if (!curve.empty() && curve.buckets().back().last_x >= x) {
      curve.DropAfter(x - 1);
    }
    curve.Add(x, *number);
  }
}

namespace {

// Takes pieces of a file, and gives its lines to a reader. Of a line that is
// longer than any event it keeps what shows that.
class LineFeed {
 public:
  explicit LineFeed(RunLogReader* reader) : reader_(reader) {}

  void Take(absl::string_view piece) {
    while (!piece.empty()) {
      const size_t end = piece.find('\n');
      Keep(piece.substr(0, end));
      if (end == absl::string_view::npos) return;
      reader_->Add(line_);
      line_.clear();
      piece.remove_prefix(end + 1);
    }
  }

  void End() {
    if (!line_.empty()) reader_->AddWithoutEnd(line_);
  }

 private:
  void Keep(absl::string_view part) {
    const size_t room = RunLogReader::kLongestLine + 1 - line_.size();
    absl::StrAppend(&line_, part.substr(0, room));
  }

  RunLogReader* reader_;
  std::string line_;
};

constexpr size_t kPiece = 1 << 18;

}  // namespace

absl::Status ReadEvents(const std::string& path, RunLogReader* reader) {
  TANDEM_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  LineFeed feed(reader);
  std::vector<char> piece(kPiece);
  for (uint64_t at = 0; at < file.size(); at += kPiece) {
    const uint64_t size = std::min<uint64_t>(kPiece, file.size() - at);
    TANDEM_RETURN_IF_ERROR(file.ReadAt(at, piece.data(), size));
    feed.Take(absl::string_view(piece.data(), size));
  }
  feed.End();
  return absl::OkStatus();
}

absl::StatusOr<RunLog> ReadRunLog(const std::string& path) {
  RunLogReader reader;
  TANDEM_RETURN_IF_ERROR(ReadEvents(path, &reader));
  if (reader.log().events == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has no events of a training job (",
        reader.log().unread_lines == 0 ? "it is empty" : "no line is one",
        "): give a file that train --metrics_file=FILE wrote"));
  }
  return std::move(reader.log());
}

}  // namespace tandem
