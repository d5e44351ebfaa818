// Says from the flight dumps of a job that hung which rank is at fault. --help.

#include "tools/hang_diagnosis/diagnose.h"

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "tools/hang_diagnosis/history.h"
#include "tools/hang_diagnosis/pytorch_form.h"
#include "tools/hang_diagnosis/report.h"

ABSL_FLAG(
    std::string, pytorch_dir, "",
    "Folder, which exists, to write the dumps to in the form of PyTorch's "
    "flight recorder (pickles named rank_N), for torchfrtrace.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Says which rank of a job that hung is at fault, who waits for it, in "
    "which "
    "operation\nand since when, from the dumps that the ranks have left.\n"
    "\n"
    "  diagnose FOLDER\n"
    "  diagnose FOLDER --pytorch_dir=frtrace\n"
    "  kill -USR2 PID    has a rank, or all ranks of a launcher, write a dump\n"
    "\n"
    "The exit code is 0 when the dumps show no hang, 1 when a rank is at "
    "fault, 2 when\nthe folder has no dumps, or none that says what a rank "
    "did, or a flag is wrong.";

constexpr int kAtFault = 1;
constexpr int kNoVerdict = kExitRefused;

absl::Status WriteForPyTorch(const JobHistory& history,
                             const std::string& folder) {
  for (const auto& [rank, dump] : history.dumps()) {
    TANDEM_RETURN_IF_ERROR(
        WriteOutputFile(absl::StrCat(folder, "/rank_", rank),
                        Pickled(PyTorchForm(history, rank))));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> folders,
                          ParseCommandLine(argc, argv, kUsage));
  if (folders.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        folders.size(), " folders were given, expected one: diagnose FOLDER"));
  }
  TANDEM_ASSIGN_OR_RETURN(FoundDumps found, ReadDumps(UserPath(folders[0])));
  for (const std::string& each : found.ignored) {
    std::cerr << "diagnose: ignored " << Printable(each) << "\n";
  }
  const JobHistory history(std::move(found.dumps));
  const Verdict verdict = Diagnose(history);
  // Others may have written the dumps.
  std::cout << PrintableLines(ReportText(history, verdict));
  const std::string pytorch_dir = absl::GetFlag(FLAGS_pytorch_dir);
  if (!pytorch_dir.empty()) {
    TANDEM_RETURN_IF_ERROR(WriteForPyTorch(history, UserPath(pytorch_dir)));
  }
  switch (verdict.fault) {
    case Verdict::Fault::kNone:
      return 0;
    case Verdict::Fault::kUnknown:
      return kNoVerdict;
    default:
      return kAtFault;
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::StatusOr<int> code = tandem::Run(argc, argv);
  if (code.ok()) return *code;
  tandem::Conclude("diagnose", code.status());
  return tandem::kNoVerdict;
}
