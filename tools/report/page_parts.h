// Page parts: the sections of a report, as pieces of HTML.

#ifndef TANDEM_TOOLS_REPORT_PAGE_PARTS_H_
#define TANDEM_TOOLS_REPORT_PAGE_PARTS_H_

#include <string>
#include <vector>

#include "tools/report/event_fields.h"
#include "tools/report/run_log.h"

namespace tandem {

// Fields of the summary that RanksSection shows: by rank, its mean step in
// milliseconds, and the median of all ranks.
inline constexpr char kSlowestRanks[] = "slowest_ranks/";
inline constexpr char kRankMedian[] = "rank_step_ms_median";

// Each is well-formed XML, with what logs hold escaped; empty where there is
// nothing to say.

// "cnn on fashion_mnist"; the run's name where its settings do not say.
std::string RunTitle(const RunLog& run);
// "2 replicas, one a rank (ddp), cpu; sgd, learning rate 0.05; batch 64; ended
// 2026-11-30 02:49 UTC". Plain text.
std::string RunLead(const RunLog& run);

// Final numbers of one run as tiles, of several as a table.
std::string NumberTiles(const RunLog& run);
std::string NumberTable(const std::vector<RunLog>& runs);

// What a reader must know to trust the curves: steps that were taken back,
// lines that were no events, no summary.
std::string RunNotes(const std::vector<RunLog>& runs);

// The slowest ranks of several, by their mean steps, where the summary has
// them.
std::string RanksSection(const RunLog& run);

// What each device held at most, by what it was for, where the summary has it.
std::string MemorySection(const RunLog& run);

// Rows "name, value".
std::string FieldTable(const EventFields& fields);
// The settings that differ.
std::string DifferingTable(const std::vector<RunLog>& runs);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_PAGE_PARTS_H_
