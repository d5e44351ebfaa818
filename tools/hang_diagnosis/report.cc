#include "tools/hang_diagnosis/report.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "core/base/short_list.h"

namespace tandem {
namespace {

using Fault = Verdict::Fault;

std::string AllRanks(const std::vector<int>& ranks) {
  return RankList(ranks, ranks.size());
}

std::string Capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(toupper(text[0]));
  return text;
}

std::string TimeText(int64_t ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S UTC", absl::FromUnixNanos(ns),
                          absl::UTCTimeZone());
}

std::string InGroup(const std::string& operation, const std::string& group) {
  return group.empty() ? operation
                       : absl::StrCat(operation, " in group \"", group, "\"");
}

// What the culprits did, or did not do.
std::string Clause(const Verdict& verdict, const std::string& operation,
                   const std::string& instead) {
  const bool one = verdict.culprits.size() == 1;
  const std::string it = one ? "it" : "they";
  const std::string has = one ? " has" : " have";
  switch (verdict.fault) {
    case Fault::kFailed:
      return absl::StrCat(it, " failed by ", one ? "itself" : "themselves",
                          ": ", verdict.reason);
    case Fault::kAbsent:
      return absl::StrCat(it, has,
                          " left no dump (killed, frozen, or out of reach), "
                          "and had not come to ",
                          operation, " as far as others know");
    case Fault::kBehind:
      return verdict.has_started
                 ? absl::StrCat(it, has, " started ", operation,
                                " and then left it alone")
                 : absl::StrCat(it, has, " not come to ", operation);
    case Fault::kLate:
      return absl::StrCat(it, " came to ", operation,
                          " when others had given up");
    case Fault::kOtherShape:
    case Fault::kOtherOrder:
      return absl::StrCat(it, " started ", instead, ", where ",
                          AllRanks(verdict.waiting), " started ", operation);
    case Fault::kOtherGroup:
      return absl::StrCat(it, one ? " waits in " : " wait in ", instead,
                          ", and not in ", operation);
    case Fault::kNone:
    case Fault::kUnknown:
      break;
  }
  return "";
}

std::string WaitingClause(const Verdict& verdict) {
  if (verdict.waiting.empty() || verdict.since_ns == 0) return "";
  const double seconds =
      1e-9 * static_cast<double>(verdict.until_ns - verdict.since_ns);
  std::string clause =
      absl::StrCat(" ", Capitalised(AllRanks(verdict.waiting)),
                   verdict.waiting.size() == 1 ? " waits" : " wait", ", ");
  absl::StrAppendFormat(&clause, "since %s (%.1f s before the dump).",
                        TimeText(verdict.since_ns), seconds);
  return clause;
}

// The clause about ranks that have not come.
std::string InsteadClause(const Verdict& verdict, const std::string& instead) {
  if (!verdict.instead.has_value()) return "";
  if (verdict.fault != Fault::kBehind && verdict.fault != Fault::kLate) {
    return "";
  }
  const std::string who = absl::StrCat(" Rank ", verdict.culprits.front());
  return verdict.instead->state == FlightState::kCompleted
             ? absl::StrCat(who, " did ", instead, " last.")
             : absl::StrCat(who, " is in ", instead, ".");
}

std::string RankLine(const JobHistory& history, int rank) {
  const auto found = history.dumps().find(rank);
  if (found == history.dumps().end()) {
    return absl::StrCat("rank ", rank, ": no dump\n");
  }
  const FlightDump& dump = found->second;
  std::string line =
      absl::StrCat("rank ", rank, " on ", dump.host, ", ",
                   TimeText(dump.dumped_ns), ": ", dump.reason, "\n");
  constexpr size_t kShown = 3;
  const size_t first =
      dump.entries.size() > kShown ? dump.entries.size() - kShown : 0;
  for (size_t i = first; i < dump.entries.size(); ++i) {
    const FlightEntry& each = dump.entries[i];
    const char* const state = each.state == FlightState::kCompleted ? "done"
                              : each.state == FlightState::kStarted
                                  ? "started"
                                  : "not started";
    absl::StrAppend(&line, "    ", each.ToString(), ": ", state, "\n");
  }
  return line;
}

}  // namespace

const char* FaultName(Verdict::Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "none";
    case Fault::kUnknown:
      return "unknown";
    case Fault::kFailed:
      return "failed";
    case Fault::kAbsent:
      return "absent";
    case Fault::kBehind:
      return "behind";
    case Fault::kLate:
      return "late";
    case Fault::kOtherShape:
      return "other shape";
    case Fault::kOtherOrder:
      return "other order";
    case Fault::kOtherGroup:
      return "other group";
  }
  return "";
}

std::string Sentence(const Verdict& verdict) {
  if (verdict.fault == Fault::kNone) {
    return "No rank waits for one that has not come: these dumps show no hang.";
  }
  if (verdict.fault == Fault::kUnknown) {
    return "It is not known who waits for whom: these dumps hold no "
           "operations. "
           "The job ran with --flight_entries=0, or had not begun any.";
  }
  const std::string operation =
      InGroup(verdict.operation.ToString(), verdict.group);
  const std::string instead =
      verdict.instead.has_value()
          ? InGroup(verdict.instead->ToString(), verdict.instead_group)
          : "";
  return absl::StrCat(Capitalised(AllRanks(verdict.culprits)),
                      verdict.culprits.size() == 1 ? " is" : " are",
                      " at fault (", FaultName(verdict.fault),
                      "): ", Clause(verdict, operation, instead), ".",
                      WaitingClause(verdict), InsteadClause(verdict, instead));
}

std::string ReportText(const JobHistory& history, const Verdict& verdict) {
  std::string text = Sentence(verdict) + "\n\n";
  for (int rank = 0; rank < history.world_size(); ++rank) {
    text += RankLine(history, rank);
  }
  return text;
}

}  // namespace tandem
