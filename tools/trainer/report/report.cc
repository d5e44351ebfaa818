#include "tools/trainer/report/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "tools/trainer/report/shown.h"

namespace tandem {

using Json = nlohmann::ordered_json;

namespace {

// Every event has its time: seconds since 1970.
Json EventOf(const char* name) {
  const std::chrono::duration<double> now =
      std::chrono::system_clock::now().time_since_epoch();
  return {{"event", name}, {"time", now.count()}};
}

// "none", or "copy to the host: 1.00, event: 0.25".
std::string DescribeWaits(const std::map<std::string, double>& waits) {
  if (waits.empty()) return "none";
  return absl::StrJoin(waits, ", ", [](std::string* text, const auto& each) {
    absl::StrAppendFormat(text, "%s: %.2f", each.first, each.second);
  });
}

}  // namespace

Report Report::Silent() { return Report(nullptr); }

Report Report::Speaking(MetricsFile metrics) {
  return Report(std::make_unique<MetricsFile>(std::move(metrics)));
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
  Json event = EventOf("settings");
  for (const auto& [name, value] : all) {
    std::visit([&, key = name](const auto& typed) { event[key] = typed; },
               value);
  }
  WriteEvent(event);
}

void Report::ShowStart(const Start& start) {
  if (silent()) return;
  Json event = EventOf("start");
  event.update({{"job", start.job}, {"step", start.step}});
  if (!start.checkpoint.empty()) event["checkpoint"] = start.checkpoint;
  WriteEvent(event);
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
  Say(LineOf(step, steps_in_all));
  Json event = EventOf("step");
  event.update(FieldsOf(step));
  WriteEvent(event);
}

void Report::ShowSkippedStep(const SkippedStepReport& skipped) {
  if (silent()) return;
  const bool is_scaled = skipped.loss_scale > 0;
  Say(absl::StrFormat(
      "step %d was skipped: its gradients are not finite%s (%d skipped in all)",
      skipped.step,
      is_scaled ? absl::StrFormat("; the loss is scaled by %.10g from now on",
                                  skipped.loss_scale)
                : "",
      skipped.skipped_steps));
  Json event = EventOf("skipped_step");
  event.update(
      {{"step", skipped.step}, {"skipped_steps", skipped.skipped_steps}});
  if (is_scaled) event["loss_scale"] = skipped.loss_scale;
  WriteEvent(event);
}

void Report::ShowEvaluation(const EvaluationReport& evaluation) {
  if (silent()) return;
  Say(LineOf(evaluation));
  Json event = EventOf("eval");
  event.update(FieldsOf(evaluation));
  WriteEvent(event);
}

void Report::ShowSummary(const SummaryReport& summary) {
  if (silent()) return;
  EndProgress();
  Say("summary");
  if (summary.test.count > 0) {
    Say(absl::StrFormat("  test accuracy      %.2f %%, loss %.4f",
                        100 * summary.test.accuracy(),
                        Shown(summary.test.loss())));
  }
  if (summary.steps > 0) {
    Say(absl::StrFormat(
        "  training           %d steps, %.0f samples/s, "
        "%.1f ms a step (median)",
        summary.steps, summary.samples_per_s, summary.step_ms_median));
  }
  if (summary.skipped_steps > 0) {
    Say(absl::StrFormat("  skipped            %d steps",
                        summary.skipped_steps));
  }
  if (summary.steps > 0) {
    Say(absl::StrFormat("  start to first step %.0f ms", summary.startup_ms));
  }
  Say(absl::StrFormat("  peak memory        %.0f MiB", summary.peak_rss_mib));
  for (const auto& [device, peak] : summary.device_memory) {
    Say(absl::StrFormat("  peak on %-10s %s", device, peak));
  }
  if (summary.host_waits) {
    Say(absl::StrFormat("  host waits a step  %s",
                        DescribeWaits(*summary.host_waits)));
  }
  Say(absl::StrFormat("  weights_sha256     %s", summary.weights_sha256));
  for (const auto& [name, value] : summary.measurements) {
    Say(absl::StrFormat("  %s %.0f", name, value));
  }
  if (summary.saves > 0) {
    Say(absl::StrFormat("  saving             %d times, %.1f ms in all",
                        summary.saves, summary.save_stall_ms));
  }
  if (!summary.checkpoint.empty()) {
    Say(absl::StrFormat("  checkpoint         %s", summary.checkpoint));
  }
  if (!summary.advice.empty()) {
    Say("what to try next: the same flags (--help lists all), and");
  }
  for (const auto& [what, flags] : summary.advice) {
    Say(absl::StrFormat("  %-18s %s", what, flags));
  }
  Json memory = Json::object();
  for (const auto& [device, peak] : summary.device_memory) {
    memory[device] = peak;
  }
  Json measurements = Json::object();
  for (const auto& [name, value] : summary.measurements) {
    measurements[name] = value;
  }
  Json event = EventOf("summary");
  if (summary.test.count > 0) {
    event.update({{"test_accuracy", summary.test.accuracy()},
                  {"test_loss", summary.test.loss()}});
  }
  event.update(
      {{"loss", summary.last_steps.loss()},
       {"samples_per_s", summary.samples_per_s},
       {"step_ms_median", summary.step_ms_median},
       {"skipped_steps", summary.skipped_steps},
       {"peak_rss_mib", summary.peak_rss_mib},
       {"device_memory", memory},
       {"host_waits", summary.host_waits ? Json(*summary.host_waits) : Json()},
       {"startup_ms", summary.startup_ms},
       {"saves", summary.saves},
       {"save_stall_ms", summary.save_stall_ms},
       {"flight_entries", summary.flight_entries},
       {"weights_sha256", summary.weights_sha256},
       {"measurements", measurements}});
  WriteEvent(event);
}

}  // namespace tandem
