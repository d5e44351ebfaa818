#include "tools/report/page_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/byte_size.h"
#include "core/drawing/markup.h"
#include "tools/report/final_numbers.h"
#include "tools/report/job_layout.h"
#include "tools/report/line_plot.h"
#include "tools/report/quantities.h"
#include "tools/report/settings_tables.h"

namespace tandem {
namespace {

// A table's cells in a row.
std::string Row(const std::string& head, const std::vector<std::string>& cells,
                const char* tag = "td") {
  std::string row = absl::StrCat("<tr><th>", EscapedMarkup(head), "</th>");
  for (const std::string& cell : cells) {
    absl::StrAppend(&row, "<", tag, ">", EscapedMarkup(cell), "</", tag, ">");
  }
  return row + "</tr>\n";
}

// What is too wide for the page scrolls in a box of its own.
std::string Table(const std::string& css_class, const std::string& content) {
  return absl::StrCat(
      "<div class=\"scroll\"><table",
      css_class.empty() ? "" : absl::StrCat(" class=\"", css_class, "\""), ">",
      content, "</table></div>\n");
}

// Above each run's column its colour and name.
std::string RunsHead(const std::vector<RunLog>& runs) {
  std::string head = "<thead><tr><th></th>";
  for (size_t i = 0; i < runs.size(); ++i) {
    absl::StrAppend(&head, "<th><span class=\"key\"><i class=\"c",
                    i % kPlotColours,
                    i / kPlotColours % 2 == 1 ? " dashed" : "", "\"></i><bdi>",
                    EscapedMarkup(runs[i].name), "</bdi></span></th>");
  }
  return head + "</tr></thead>\n";
}

std::string RunsTable(const std::vector<RunLog>& runs,
                      const std::string& rows) {
  return Table("runs",
               absl::StrCat(RunsHead(runs), "<tbody>", rows, "</tbody>"));
}

std::string Counted(int64_t count, const char* one, const char* several) {
  return absl::StrCat(ShownCount(count), " ", count == 1 ? one : several);
}

std::string Note(const RunLog& run, bool is_named, const std::string& text) {
  return absl::StrCat(
      "<p class=\"note warning\">",
      is_named ? absl::StrCat("<bdi>", EscapedMarkup(run.name), "</bdi>: ")
               : "",
      EscapedMarkup(text), "</p>\n");
}

// A part of a device's memory: what it is for, and bytes.
using MemoryParts = std::vector<std::pair<std::string, int64_t>>;

// From "12 MiB: parameters 8 MiB, other 4 MiB; 20 MiB of 80 GiB reserved"
// (DescribePeak, core/memory/device_memory.h). Empty for another text.
MemoryParts ReadMemory(absl::string_view text) {
  MemoryParts parts;
  const std::vector<absl::string_view> halves =
      absl::StrSplit(text.substr(0, text.find(';')), absl::MaxSplits(": ", 1));
  if (halves.size() != 2) return {};
  for (const absl::string_view part : absl::StrSplit(halves[1], ", ")) {
    const size_t end = part.find(' ');
    if (end == absl::string_view::npos) return {};
    const auto bytes = ParseByteSize(part.substr(end));
    if (!bytes.ok()) return {};
    parts.emplace_back(part.substr(0, end), *bytes);
  }
  return parts;
}

// Categories have the same colour in every bar.
class CategoryColours {
 public:
  int Of(const std::string& category) {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == category) return static_cast<int>(i) % kPlotColours;
    }
    names_.push_back(category);
    return static_cast<int>(names_.size() - 1) % kPlotColours;
  }

  std::string Legend() {
    std::string legend = "<p class=\"legend\">";
    for (const std::string& name : names_) {
      absl::StrAppend(&legend, "<span class=\"key\"><i class=\"c", Of(name),
                      "\"></i>", EscapedMarkup(name), "</span> ");
    }
    return names_.empty() ? "" : legend + "</p>\n";
  }

 private:
  std::vector<std::string> names_;
};

// A bar as wide as its part of `most`.
std::string MemoryBar(const MemoryParts& parts, double most,
                      CategoryColours* colours) {
  std::string bar = "<div class=\"bar\">";
  for (const auto& [name, bytes] : parts) {
    absl::StrAppendFormat(&bar,
                          "<span class=\"c%d\" style=\"width:%.2f%%\"></span>",
                          colours->Of(name), 100 * bytes / most);
  }
  return parts.empty() ? "" : bar + "</div>";
}

// Digits of a checksum that tell runs apart.
constexpr size_t kShownDigits = 12;

constexpr char kDeviceMemory[] = "device_memory/";
constexpr size_t kMostDevices = 64;

constexpr size_t kMostListedRanks = 64;

}  // namespace

std::string RunTitle(const RunLog& run) {
  const std::string model = TextField(run.settings, "model");
  const std::string dataset = TextField(run.settings, "dataset");
  if (model.empty()) return run.name.empty() ? "A training run" : run.name;
  return dataset.empty() ? model : absl::StrCat(model, " on ", dataset);
}

std::string RunLead(const RunLog& run) {
  std::vector<std::string> parts;
  if (const auto layout = ReadLayout(run.settings)) {
    parts.push_back(DescribeLayout(*layout));
  }
  const std::string optimizer = TextField(run.settings, "optimizer");
  if (!optimizer.empty()) {
    const auto rate = NumberField(run.settings, "learning_rate");
    parts.push_back(absl::StrCat(
        optimizer, rate ? ", learning rate " + ShownNumber(*rate) : ""));
  }
  if (const auto batch = CountField(run.settings, "batch_size")) {
    parts.push_back(absl::StrCat("batch ", ShownCount(*batch)));
  }
  const std::string date = ShownDate(run.ended);
  if (!date.empty()) parts.push_back("ended " + date);
  return absl::StrJoin(parts, "; ");
}

std::string NumberTiles(const RunLog& run) {
  std::string tiles;
  for (const FinalNumber& number : FinalNumbers(run)) {
    const bool has_both = !number.unit.empty() && !number.note.empty();
    const std::string more =
        absl::StrCat(number.unit, has_both ? ", " : "", number.note);
    absl::StrAppend(&tiles, "<div><dt>", EscapedMarkup(number.label),
                    "</dt><dd>", EscapedMarkup(number.value), "</dd>",
                    more.empty() ? ""
                                 : absl::StrCat("<dd class=\"more\">",
                                                EscapedMarkup(more), "</dd>"),
                    "</div>\n");
  }
  return tiles.empty()
             ? ""
             : absl::StrCat("<dl class=\"numbers\">\n", tiles, "</dl>\n");
}

std::string NumberTable(const std::vector<RunLog>& runs) {
  std::vector<std::vector<FinalNumber>> all;
  for (const RunLog& run : runs) all.push_back(FinalNumbers(run));
  std::vector<std::string> labels;
  for (const auto& numbers : all) {
    for (const FinalNumber& number : numbers) {
      if (std::find(labels.begin(), labels.end(), number.label) ==
          labels.end()) {
        labels.push_back(number.label);
      }
    }
  }
  std::string rows;
  for (const std::string& label : labels) {
    std::vector<std::string> cells;
    for (const auto& numbers : all) {
      std::string cell = "-";
      for (const FinalNumber& number : numbers) {
        if (number.label != label) continue;
        cell = absl::StrCat(number.value, number.unit.empty() ? "" : " ",
                            number.unit);
      }
      cells.push_back(cell);
    }
    rows += Row(label, cells);
  }
  std::vector<std::string> weights;
  bool has_weights = false;
  for (const RunLog& run : runs) {
    const std::string sha = TextField(run.summary, "weights_sha256");
    weights.push_back(sha.empty() ? "-" : sha.substr(0, kShownDigits));
    has_weights |= !sha.empty();
  }
  if (has_weights) rows += Row("weights_sha256", weights);
  return rows.empty() ? "" : RunsTable(runs, rows);
}

std::string RunNotes(const std::vector<RunLog>& runs) {
  std::string notes;
  for (const RunLog& run : runs) {
    const auto add = [&](const std::string& text) {
      notes += Note(run, runs.size() > 1, text);
    };
    if (run.dropped_from > 0) {
      add(absl::StrCat("The job went on from step ",
                       ShownCount(run.dropped_from),
                       " after it had come further: what it had done behind "
                       "that step is left out."));
    }
    if (run.summary.empty() && run.events > 0) {
      add("There is no summary: the job was stopped, has failed, or still "
          "runs.");
    }
    const int64_t unread = run.unread_lines - (run.is_torn ? 1 : 0);
    if (unread > 0) {
      add(absl::StrCat(
          Counted(unread, "line is no event", "lines are no events"),
          ", the first is line ", run.first_unread, "."));
    }
  }
  return notes;
}

std::string RanksSection(const RunLog& run) {
  std::vector<std::pair<std::string, double>> ranks;
  double most = 0;
  for (const auto& [name, value] : run.summary) {
    const double ms = FieldNumber(value).value_or(0);
    if (!absl::StartsWith(name, kSlowestRanks) || !(ms > 0 && ms < 1e12)) {
      continue;
    }
    if (ranks.size() == kMostListedRanks) break;
    ranks.emplace_back(name.substr(sizeof(kSlowestRanks) - 1), ms);
    most = std::max(most, ms);
  }
  if (ranks.size() < 2) return "";
  const double median = NumberField(run.summary, kRankMedian).value_or(0);
  std::string rows;
  for (const auto& [rank, ms] : ranks) {
    const std::string over =
        median > 0 ? absl::StrFormat("%+.1f %%", 100 * (ms / median - 1)) : "";
    absl::StrAppendFormat(
        &rows,
        "<tr><th>rank %s</th><td><div class=\"bar c0\"><span style=\"width:"
        "%.2f%%\"></span></div></td><td>%s</td><td>%s</td></tr>\n",
        EscapedMarkup(rank), 100 * ms / most, ShownSeconds(ms / 1e3), over);
  }
  return absl::StrCat(
      "<h2>Slowest ranks</h2>\n<p class=\"note\">Each rank's mean step, and "
      "how far it lies from the median of all ranks. Ranks that wait for each "
      "other in a step take as long as the slowest of them.</p>\n",
      Table("ranks", rows));
}

std::string MemorySection(const RunLog& run) {
  std::vector<std::pair<std::string, std::string>> devices;
  double most = 0;
  for (const auto& [name, value] : run.summary) {
    const auto* const text = std::get_if<std::string>(&value);
    if (text == nullptr || !absl::StartsWith(name, kDeviceMemory)) continue;
    if (devices.size() == kMostDevices) break;
    devices.emplace_back(name.substr(sizeof(kDeviceMemory) - 1), *text);
    double sum = 0;
    for (const auto& [what, bytes] : ReadMemory(*text)) sum += bytes;
    most = std::max(most, sum);
  }
  if (devices.empty()) return "";
  CategoryColours colours;
  std::string rows;
  for (const auto& [device, text] : devices) {
    absl::StrAppend(&rows, "<tr><th>", EscapedMarkup(device), "</th><td>",
                    MemoryBar(ReadMemory(text), most, &colours),
                    EscapedMarkup(text), "</td></tr>\n");
  }
  return absl::StrCat("<h2>Memory of devices, at most</h2>\n", colours.Legend(),
                      Table("memory", rows));
}

std::string FieldTable(const EventFields& fields) {
  std::string rows;
  for (const auto& [name, value] : fields) {
    rows += Row(name, {FieldText(value)});
  }
  return rows.empty() ? "" : Table("", rows);
}

std::string DifferingTable(const std::vector<RunLog>& runs) {
  std::string rows;
  for (const SettingRow& row : DifferingSettings(runs)) {
    rows += Row(row.name, row.values);
  }
  return rows.empty() ? "" : RunsTable(runs, rows);
}

}  // namespace tandem
