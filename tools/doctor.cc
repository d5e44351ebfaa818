// Says what a machine has for training, what is missing, and the fix. --help.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "core/program/process.h"
#include "tools/diagnosis/facts.h"
#include "tools/diagnosis/report.h"

ABSL_FLAG(std::string, device, "auto",
          "What the job is to run on: cpu, cuda, or auto, which is cuda where "
          "the machine has a GPU.");
ABSL_FLAG(int64_t, nproc_per_node, 0,
          "Ranks on this machine. 0: one for each GPU, or one on the CPU.");
ABSL_FLAG(int64_t, nnodes, 1, "Machines like this one.");
ABSL_FLAG(std::string, json, "",
          "File to write the findings to as JSON; \"-\": print that instead.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Says whether a job would run on this machine, what would slow it down, "
    "and the\nfix. Works without a GPU.\n"
    "\n"
    "  doctor\n"
    "  doctor --device=cuda --nproc_per_node=8 --nnodes=4\n"
    "  doctor --json=-\n"
    "\n"
    "The exit code is 0 when nothing stops the job, 1 when something does, 2 "
    "when a\nflag is wrong or the answer cannot be written.";

constexpr int kStops = 1;

absl::StatusOr<PlannedJob> JobFromFlags(const Facts& facts) {
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device != "auto" && device != "cpu" && device != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", device, ": expected auto, cpu or cuda"));
  }
  constexpr int64_t kMost = 100000;
  const int64_t ranks = absl::GetFlag(FLAGS_nproc_per_node);
  const int64_t machines = absl::GetFlag(FLAGS_nnodes);
  if (ranks < 0 || ranks > kMost || machines < 1 || machines > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nproc_per_node=", ranks, " --nnodes=", machines,
                     ": expected 0 to ", kMost, " and 1 to ", kMost));
  }
  const int gpus = static_cast<int>(facts.cuda.driver.gpus.size());
  PlannedJob job;
  job.on_gpus = device == "cuda" || (device == "auto" && gpus > 0);
  if (ranks > 0) {
    job.ranks = static_cast<int>(ranks);
  } else if (job.on_gpus && gpus > 0) {
    job.ranks = gpus;
  }
  job.machines = static_cast<int>(machines);
  return job;
}

absl::StatusOr<int> Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers,
                          ParseCommandLine(argc, argv, kUsage));
  if (!leftovers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", leftovers.front(), "' is no flag"));
  }
  SetLibTorchLogLevel();
  const Facts facts = GatherFacts();
  TANDEM_ASSIGN_OR_RETURN(const PlannedJob job, JobFromFlags(facts));
  const Findings findings = AllFindings(facts, job);
  const std::string json = absl::GetFlag(FLAGS_json);
  if (!json.empty() && json != "-") {
    TANDEM_RETURN_IF_ERROR(
        WriteOutputFile(UserPath(json), ReportJson(findings, job)));
  }
  std::cout << (json == "-" ? ReportJson(findings, job)
                            : ReportText(findings, job));
  return IsStopped(findings) ? kStops : 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::StatusOr<int> code = tandem::Run(argc, argv);
  if (code.ok()) return *code;
  tandem::Conclude("doctor", code.status());
  return tandem::kExitRefused;
}
