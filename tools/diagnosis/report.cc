#include "tools/diagnosis/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/diagnosis/gpu_checks.h"
#include "tools/diagnosis/machine_checks.h"

namespace tandem {
namespace {

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kFine:
      return "fine";
    case Severity::kSlow:
      return "slow";
    case Severity::kStopped:
      return "stopped";
  }
  return "";
}

// "1 rank", "2 ranks".
std::string Counted(int count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string Describe(const PlannedJob& job) {
  const std::string where =
      job.machines == 1 ? "one machine"
                        : absl::StrCat(job.machines, " machines, on each");
  return absl::StrCat("a job of ", Counted(job.ranks, "rank"), " on ", where,
                      ", on ", job.on_gpus ? "GPUs" : "the CPU");
}

int Count(const Findings& findings, Severity severity) {
  return static_cast<int>(std::count_if(
      findings.begin(), findings.end(),
      [&](const Finding& each) { return each.severity == severity; }));
}

}  // namespace

Findings AllFindings(const Facts& facts, const PlannedJob& job) {
  Findings all;
  for (const Findings& some :
       {CheckDriver(facts.cuda, job), CheckBuild(facts.cuda, job),
        CheckGpus(facts.cuda, job), CheckLinks(facts.cuda),
        CheckNccl(facts.cuda, facts.limits, job),
        CheckProcessor(facts.processor, job), CheckCores(facts.processor, job),
        CheckLoad(facts.processor, job), CheckMemory(facts.processor, job),
        CheckSharedMemory(facts.limits), CheckFiles(facts.limits, job),
        CheckThreads(facts.limits, facts.processor, job),
        CheckNetwork(facts.network, job)}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

bool IsStopped(const Findings& findings) {
  return Count(findings, Severity::kStopped) > 0;
}

std::string ReportText(const Findings& findings, const PlannedJob& job) {
  std::string text;
  for (const Finding& each : findings) {
    absl::StrAppendFormat(&text, "%-8s %-14s %s\n", SeverityName(each.severity),
                          each.subject, each.what);
    if (!each.fix.empty()) {
      absl::StrAppendFormat(&text, "%-8s %-14s to do: %s\n", "", "", each.fix);
    }
  }
  const int stopping = Count(findings, Severity::kStopped);
  const int slowing = Count(findings, Severity::kSlow);
  absl::StrAppend(&text, "\n", Describe(job), ": ");
  if (stopping > 0) {
    absl::StrAppend(&text, "it would not run (", Counted(stopping, "finding"),
                    " above)\n");
  } else {
    absl::StrAppend(&text, "nothing stops it",
                    slowing > 0
                        ? absl::StrCat(", ", Counted(slowing, "finding"),
                                       " may slow it down")
                        : "",
                    "\n");
  }
  return text;
}

std::string ReportJson(const Findings& findings, const PlannedJob& job) {
  nlohmann::ordered_json report;
  report["job"] = {{"device", job.on_gpus ? "cuda" : "cpu"},
                   {"nproc_per_node", job.ranks},
                   {"nnodes", job.machines}};
  report["stopped"] = IsStopped(findings);
  report["findings"] = nlohmann::ordered_json::array();
  for (const Finding& each : findings) {
    report["findings"].push_back({{"severity", SeverityName(each.severity)},
                                  {"subject", each.subject},
                                  {"what", each.what},
                                  {"fix", each.fix}});
  }
  // A path need not be UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace tandem
