#include "tools/report/report_page.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/drawing/markup.h"
#include "tools/report/job_layout.h"
#include "tools/report/line_plot.h"
#include "tools/report/mesh_drawing.h"
#include "tools/report/page_parts.h"
#include "tools/report/page_style.h"
#include "tools/report/quantities.h"
#include "tools/report/settings_tables.h"

namespace tandem {
namespace {

using Runs = std::vector<RunLog>;

// A field of steps, as a plot.
struct StepPlot {
  std::string field;
  std::string title;
  std::string unit;
  bool is_smoothed = false;
  bool may_be_logarithmic = false;
  bool is_percent = false;
};

// Runs one by one have colours; training and test of one run, too.
LinePlot PlotOf(const Runs& runs, const StepPlot& what, bool with_test) {
  LinePlot plot;
  plot.title = what.title;
  plot.unit = what.unit;
  plot.may_be_logarithmic = what.may_be_logarithmic;
  plot.is_percent = what.is_percent;
  const bool is_alone = runs.size() == 1;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto add = [&](const ThinnedSeries* series, const char* part,
                         bool is_test) {
      if (series == nullptr) return;
      PlotLine line;
      line.name = is_alone ? part : absl::StrCat(runs[i].name, " ", part);
      if (!with_test) line.name = is_alone ? "" : runs[i].name;
      line.series = series;
      line.colour = is_alone ? (is_test ? 1 : 0) : static_cast<int>(i);
      line.is_dashed = is_test && !is_alone;
      line.has_dots = is_test;
      line.is_smoothed = what.is_smoothed && !is_test;
      plot.lines.push_back(std::move(line));
    };
    add(runs[i].Curve(what.field), "training", false);
    if (with_test) add(runs[i].EvaluationCurve(what.field), "test", true);
  }
  return plot;
}

// The curve that is looked at first, over steps and over their logarithm: a
// reader chooses without a script.
std::string LossSection(const Runs& runs) {
  LinePlot plot = PlotOf(runs, {"loss", "Loss", "", true, true}, true);
  plot.css_class = "main linear";
  const std::string linear = LinePlotFigure(plot);
  plot.has_logarithmic_steps = true;
  plot.css_class = "main logarithmic";
  const std::string logarithmic = LinePlotFigure(plot);
  if (linear.empty()) return "";
  bool is_smoothed = false;
  for (const PlotLine& line : plot.lines) {
    is_smoothed |=
        line.is_smoothed && line.series->buckets().size() >= kFewestSmoothed;
  }
  if (logarithmic.empty()) return linear;
  return absl::StrCat(
      "<div class=\"choice\"><input type=\"radio\" name=\"steps\" "
      "id=\"linear\" checked=\"checked\"/><label for=\"linear\">linear "
      "steps</label> <input type=\"radio\" name=\"steps\" id=\"log\"/><label "
      "for=\"log\">logarithmic</label>\n",
      linear, logarithmic, "</div>\n",
      is_smoothed ? "<p class=\"note\">Thin: what was measured, with the least "
                    "and the greatest of neighbours. Thick: smoothed.</p>\n"
                  : "");
}

bool HasText(const Runs& runs) {
  for (const RunLog& run : runs) {
    if (run.Curve("tokens_per_s") != nullptr) return true;
  }
  return false;
}

// Losses that a model adds, and what it counts, by their names.
std::vector<StepPlot> AddedPlots(const Runs& runs) {
  std::vector<StepPlot> plots;
  std::set<std::string> seen;
  for (const RunLog& run : runs) {
    for (const auto& [field, unused] : run.steps) {
      const size_t slash = field.find('/');
      if (slash == std::string::npos || !seen.insert(field).second) continue;
      plots.push_back({field, field.substr(slash + 1),
                       absl::StartsWith(field, "sums/") ? "sum" : "", true,
                       true});
    }
  }
  return plots;
}

std::string FurtherPlots(const Runs& runs) {
  std::string figures = LinePlotFigure(
      PlotOf(runs, {"accuracy", "Accuracy", "", true, false, true}, true));
  std::vector<StepPlot> plots = {
      {"learning_rate", "Learning rate", ""},
      {"gradient_norm", "Gradient norm", "", true, true},
      HasText(runs)
          ? StepPlot{"tokens_per_s", "Throughput", "tokens/s", true}
          : StepPlot{"samples_per_s", "Throughput", "samples/s", true},
      {"step_ms", "Step time", "ms", true, true},
      {"mfu", "Model FLOPs utilization", "", true, false, true},
      {"loss_scale", "Loss scale", "", false, true},
      {"rss_mib", "Memory of rank 0's process", "MiB"}};
  for (StepPlot& added : AddedPlots(runs)) plots.push_back(std::move(added));
  for (const StepPlot& plot : plots) {
    figures += LinePlotFigure(PlotOf(runs, plot, false));
  }
  if (figures.empty()) return "";
  return absl::StrCat("<h2>Curves</h2>\n<div class=\"plots\">\n", figures,
                      "</div>\n");
}

std::string LayoutSection(const RunLog& run) {
  const auto layout = ReadLayout(run.settings);
  if (!layout) return "";
  const std::string drawings =
      absl::StrCat(MeshDrawing(*layout), ScheduleDrawing(*layout));
  return drawings.empty() ? "" : absl::StrCat("<h2>Layout</h2>\n", drawings);
}

std::string PipelineSection(const RunLog& run) {
  const std::string times = TextField(run.summary, "pipeline_times");
  if (times.empty()) return "";
  std::string lines;
  size_t begin = 0;
  while (begin <= times.size()) {
    const size_t end = std::min(times.find('\n', begin), times.size());
    absl::StrAppend(&lines, EscapedMarkup(times.substr(begin, end - begin)),
                    "\n");
    begin = end + 1;
  }
  return absl::StrCat("<h2>Where the pipeline's time went</h2>\n<pre>", lines,
                      "</pre>\n");
}

std::string Details(const char* summary, const std::string& content) {
  if (content.empty()) return "";
  return absl::StrCat("<details><summary>", summary, "</summary>\n", content,
                      "</details>\n");
}

std::string SettingsSection(const RunLog& run) {
  const EventFields all = WithoutPosition(run.settings);
  if (all.empty()) return "";
  return absl::StrCat(
      "<h2>Settings</h2>\n", FieldTable(UnusualSettings(run.settings)),
      Details(absl::StrCat("All ", all.size(), " settings").c_str(),
              FieldTable(all)));
}

// What the summary has, but what stands elsewhere.
EventFields SummaryFields(const RunLog& run) {
  EventFields fields;
  for (const auto& [name, value] : WithoutPosition(run.summary)) {
    if (name == "pipeline_times" || name == kRankMedian ||
        absl::StartsWith(name, "device_memory/") ||
        absl::StartsWith(name, kSlowestRanks) ||
        std::holds_alternative<std::monostate>(value)) {
      continue;
    }
    fields.emplace_back(name, value);
  }
  return fields;
}

std::string OneRun(const RunLog& run) {
  const EventFields environment = WithoutPosition(run.environment);
  return absl::StrCat(
      NumberTiles(run), RunNotes({run}), LossSection({run}),
      FurtherPlots({run}), LayoutSection(run), PipelineSection(run),
      RanksSection(run), MemorySection(run), SettingsSection(run),
      environment.empty() ? "" : "<h2>Environment</h2>\n",
      FieldTable(environment), run.summary.empty() ? "" : "<h2>Summary</h2>\n",
      Details("All that the job said at its end",
              FieldTable(SummaryFields(run))));
}

std::string SeveralRuns(const Runs& runs) {
  const std::string differing = DifferingTable(runs);
  return absl::StrCat(
      NumberTable(runs), RunNotes(runs), LossSection(runs), FurtherPlots(runs),
      differing.empty() ? "" : "<h2>Settings that differ</h2>\n", differing);
}

// "cnn on fashion_mnist" where all runs are of that; "3 runs".
std::string TitleOf(const Runs& runs) {
  const std::string first = RunTitle(runs.front());
  if (runs.size() == 1) return first;
  const std::string several = absl::StrCat(runs.size(), " runs");
  for (const RunLog& run : runs) {
    if (RunTitle(run) != first) return several;
  }
  return absl::StrCat(several, " of ", first);
}

std::string Footer(const Runs& runs) {
  int64_t events = 0;
  for (const RunLog& run : runs) events += run.events;
  std::string text = absl::StrCat(
      "Made by tandem from ", ShownCount(events), " events",
      runs.size() == 1 ? "" : absl::StrCat(" of ", runs.size(), " runs"));
  const std::string sha = TextField(runs.front().summary, "weights_sha256");
  if (runs.size() == 1 && !sha.empty()) {
    absl::StrAppend(&text, "; weights_sha256 ", sha);
  }
  return absl::StrCat("<footer>", EscapedMarkup(text), ".</footer>\n");
}

}  // namespace

std::string ReportPage(const std::vector<RunLog>& runs) {
  const std::string title = TitleOf(runs);
  const std::string lead = runs.size() == 1 ? RunLead(runs.front()) : "";
  return absl::StrCat(
      PageBegin(title), "<h1>", EscapedMarkup(title), "</h1>\n",
      lead.empty()
          ? ""
          : absl::StrCat("<p class=\"lead\">", EscapedMarkup(lead), "</p>\n"),
      runs.size() == 1 ? OneRun(runs.front()) : SeveralRuns(runs), Footer(runs),
      PageEnd());
}

}  // namespace tandem
