#include "tools/report/mesh_drawing.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/text_table.h"
#include "core/drawing/markup.h"
#include "parallel/schedule/schedule.h"

namespace tandem {
namespace {

// Ranks of a row of text that has no columns of its own.
constexpr size_t kRanksOfALine = 4;

struct RankCell {
  std::string name;   // "rank 3"
  std::string holds;  // "stages 0, 4"; empty: the whole model
};

struct MeshRow {
  std::string name;  // "data 1"; empty: rows have no names
  std::vector<RankCell> ranks;
};

struct MeshTable {
  std::vector<std::string> columns;  // "pipe 0"; empty: single ranks
  std::vector<MeshRow> rows;
  std::vector<std::string> more;  // "984 more ranks"
};

void AddMore(int64_t more, absl::string_view what, MeshTable& table) {
  if (more <= 0) return;
  table.more.push_back(
      absl::StrCat(more, " more ", what, more == 1 ? "" : "s"));
}

// The stages of a rank, as "stages 0, 4"; empty: there is one whole model, or
// several.
std::string StagesOfRank(const JobLayout& layout, const Schedule* schedule,
                         int64_t pipe) {
  if (layout.is_data_parallel()) {
    return absl::StrCat(layout.devices_per_rank, " replica",
                        layout.devices_per_rank == 1 ? "" : "s");
  }
  std::vector<int> stages;
  for (int64_t i = 0; i < layout.devices_per_rank; ++i) {
    const int64_t device = pipe * layout.devices_per_rank + i;
    if (schedule == nullptr) {
      stages.push_back(static_cast<int>(device));
      continue;
    }
    const std::vector<int>& more =
        schedule->stages_of[static_cast<size_t>(device)];
    stages.insert(stages.end(), more.begin(), more.end());
  }
  std::sort(stages.begin(), stages.end());
  return absl::StrCat(stages.size() == 1 ? "stage " : "stages ",
                      absl::StrJoin(stages, ", "));
}

// ", tensor 1"; empty where a rank has whole layers.
std::string PartOf(const JobLayout& layout, int64_t tensor) {
  return layout.tensor > 1 ? absl::StrCat(", tensor ", tensor) : "";
}

// ", shard group 1"; empty where all replicas are one group, or none.
std::string GroupOf(const JobLayout& layout, int64_t replica) {
  return layout.shares_in_groups()
             ? absl::StrCat(", shard group ", replica / layout.shard)
             : "";
}

// Replicas of one rank each, or of some that share layers, side by side.
MeshTable SingleRanks(const JobLayout& layout) {
  const int64_t shown = std::min(layout.ranks(), kMostDrawnRanks);
  MeshTable table;
  table.rows.emplace_back();
  for (int64_t rank = 0; rank < shown; ++rank) {
    const int64_t replica = rank / layout.tensor;
    const std::string role =
        rank < layout.servers ? "server"
        : layout.servers > 0  ? "worker"
        : layout.data > 1
            ? absl::StrCat("replica ", replica, GroupOf(layout, replica),
                           PartOf(layout, rank % layout.tensor))
        : layout.tensor > 1 ? absl::StrCat("tensor ", rank)
                            : "";
    const std::string stages =
        layout.devices_per_rank > 1 ? StagesOfRank(layout, nullptr, 0) : "";
    table.rows.back().ranks.push_back(
        {absl::StrCat("rank ", rank),
         absl::StrCat(role, role.empty() || stages.empty() ? "" : ": ",
                      stages)});
  }
  AddMore(layout.ranks() - shown, "rank", table);
  return table;
}

// Replicas of several ranks below each other.
MeshTable Replicas(const JobLayout& layout) {
  const absl::StatusOr<Schedule> schedule = LayoutSchedule(layout);
  const int64_t rows = std::min(layout.data, kMostDrawnReplicas);
  const int64_t of_replica = layout.pipe * layout.tensor;
  const int64_t columns = std::min(of_replica, kMostDrawnRanks);
  MeshTable table;
  for (int64_t rank = 0; rank < columns; ++rank) {
    table.columns.push_back(absl::StrCat("pipe ", rank / layout.tensor,
                                         PartOf(layout, rank % layout.tensor)));
  }
  for (int64_t data = 0; data < rows; ++data) {
    MeshRow row;
    if (layout.data > 1) row.name = absl::StrCat("data ", data);
    for (int64_t rank = 0; rank < columns; ++rank) {
      const std::string stages =
          schedule.ok() ? StagesOfRank(layout, &*schedule, rank / layout.tensor)
                        : "";
      row.ranks.push_back(
          {absl::StrCat("rank ", data * of_replica + rank),
           std::string(absl::StripPrefix(
               absl::StrCat(stages, GroupOf(layout, data)), ", "))});
    }
    table.rows.push_back(std::move(row));
  }
  AddMore(layout.data - rows, "replica", table);
  AddMore(of_replica - columns, "pipe rank", table);
  return table;
}

MeshTable MakeTable(const JobLayout& layout) {
  if (layout.ranks() * layout.devices_per_rank == 1) return {};
  return layout.pipe == 1 && !layout.is_pipeline() ? SingleRanks(layout)
                                                   : Replicas(layout);
}

std::string Markup(const RankCell& cell) {
  return absl::StrCat("<td><b>", EscapedMarkup(cell.name), "</b>",
                      cell.holds.empty() ? "" : "<br/>",
                      EscapedMarkup(cell.holds), "</td>");
}

}  // namespace

std::string MeshDrawing(const JobLayout& layout) {
  const MeshTable table = MakeTable(layout);
  if (table.rows.empty()) return "";
  std::vector<std::string> rows;
  if (!table.columns.empty()) {
    std::string header = table.rows[0].name.empty() ? "" : "<td></td>";
    for (const std::string& each : table.columns) {
      absl::StrAppend(&header, "<th>", EscapedMarkup(each), "</th>");
    }
    rows.push_back(header);
  }
  for (const MeshRow& row : table.rows) {
    std::string cells;
    if (!row.name.empty()) {
      absl::StrAppend(&cells, "<th>", EscapedMarkup(row.name), "</th>");
    }
    for (const RankCell& each : row.ranks) cells += Markup(each);
    rows.push_back(cells);
  }
  std::string page =
      absl::StrCat("<table class=\"mesh\"><tr>",
                   absl::StrJoin(rows, "</tr>\n<tr>"), "</tr></table>\n");
  for (const std::string& more : table.more) {
    absl::StrAppend(&page, "<p class=\"note\">… and ", more, ".</p>\n");
  }
  return page;
}

std::string MeshText(const JobLayout& layout) {
  const MeshTable table = MakeTable(layout);
  if (table.rows.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  const bool has_names = !table.rows[0].name.empty();
  if (!table.columns.empty()) {
    rows.emplace_back();
    if (has_names) rows.back().emplace_back();
    rows.back().insert(rows.back().end(), table.columns.begin(),
                       table.columns.end());
  }
  for (const MeshRow& row : table.rows) {
    rows.emplace_back();
    if (has_names) rows.back().push_back(row.name);
    for (const RankCell& each : row.ranks) {
      if (table.columns.empty() && rows.back().size() == kRanksOfALine) {
        rows.emplace_back();
      }
      rows.back().push_back(
          absl::StrCat(each.name, each.holds.empty() ? "" : ": ", each.holds));
    }
  }
  std::string text(absl::StripSuffix(TextTable(rows), "\n"));
  for (const std::string& more : table.more) {
    absl::StrAppend(&text, "\n... and ", more);
  }
  return text;
}

}  // namespace tandem
