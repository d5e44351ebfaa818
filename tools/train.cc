// Trains a model, on one rank or on many. docs/training.md, or --help.
//
// Top to bottom: flags, who am I, (as a launcher: start the ranks,) the job,
// the loop.

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/instrument/fault_point.h"
#include "core/launch/flags.h"
#include "core/launch/launch.h"
#include "core/launch/launcher.h"
#include "core/launch/resolve_launch.h"
#include "core/program/command_line.h"
#include "core/program/logging.h"
#include "core/program/process.h"
#include "core/store/store.h"
#include "tools/trainer/interrupt.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/setup_failure.h"
#include "tools/trainer/loop.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains a network, on one rank or on many.\n\n"
    "  train                              Fashion-MNIST, one epoch, all cores\n"
    "  train --nproc_per_node=2           the same on two ranks\n"
    "  train --model=resnet18 --epochs=3  another network, for longer\n";

constexpr int kFailed = 1;
constexpr int kRefused = 2;

// What the user can mend in what they gave is refused; the rest failed.
int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return kRefused;
    default:
      return kFailed;
  }
}

absl::StatusOr<Report> OpenReport(const Job& job) {
  if (!job.speaks()) return Report::Silent();
  TANDEM_ASSIGN_OR_RETURN(MetricsFile metrics,
                          MetricsFile::Open(job.options.metrics_file));
  return Report::Speaking(std::move(metrics));
}

// One line on stderr; the launcher, where there is one, adds the rank.
int Fail(const absl::Status& status) {
  absl::FPrintF(stderr, "train: %s\n", status.message());
  return ExitCodeOf(status);
}

absl::Status StartLogging(const TrainOptions& options, const Launch& launch) {
  LoggingOptions logging;
  logging.rank = launch.rank;
  logging.log_dir = options.log_dir;
  return Annotate(InitLogging("train", logging),
                  absl::StrCat("--log_dir=", options.log_dir));
}

absl::Status TrainAsRank(const TrainOptions& options, const Launch& launch) {
  TANDEM_RETURN_IF_ERROR(StartLogging(options, launch));
  SetFaultContext(launch.rank, /*step=*/0);
  TANDEM_ASSIGN_OR_RETURN(Job job, SetUpJob(options, launch));
  TANDEM_ASSIGN_OR_RETURN(Report report, OpenReport(job));
  // From here on there is a loop that looks; until here a signal just ends us.
  HandleInterrupts();
  return RunJob(job, report);
}

int RunRank(const TrainOptions& options, const Launch& launch) {
  const absl::Status status =
      CatchTorch([&] { return TrainAsRank(options, launch); });
  // Whatever broke after the wish to stop, broke because ranks stopped.
  const int signal_number = InterruptSignal();
  if (status.ok()) return 0;
  if (signal_number == 0) return Fail(status);
  absl::FPrintF(stderr, "train: %s\n", InterruptError().message());
  return 128 + signal_number;
}

// What this node, or rank, refuses: other nodes' ranks would wait for it.
int Refuse(const absl::Status& status) {
  const int exit_code = Fail(status);
  const absl::StatusOr<LaunchPlan> plan =
      ResolveLaunch(LaunchSettingsFromFlags(), Environment::OfProcess());
  if (!plan.ok()) return exit_code;
  const absl::StatusOr<Launch> launch =
      plan->is_launcher ? LaunchOfRank(*plan, 0, plan->launch.rendezvous.port)
                        : absl::StatusOr<Launch>(plan->launch);
  if (launch.ok()) TellOfFailedSetUp(*launch, status);
  return exit_code;
}

// Starts this node's ranks, each of which runs this program again.
int StartRanks(const LaunchPlan& plan, const TrainOptions& options, int argc,
               char** argv) {
  const std::chrono::milliseconds timeout(
      static_cast<int64_t>(options.timeout * 1e3));
  ServedStore served;
  LauncherOptions launcher;
  launcher.serve_store = [&](const std::string& host,
                             int port) -> absl::StatusOr<int> {
    TANDEM_ASSIGN_OR_RETURN(served, ServeTcpStore(host, port, timeout));
    return served.port;
  };
  launcher.tell_nodes = &TellOfDeath;
  return RunLauncher(plan, std::vector<std::string>(argv, argv + argc),
                     launcher);
}

int Main(int argc, char** argv) {
  SetLibTorchLogLevel();
  IgnoreFileSizeSignal();
  const auto leftovers = ParseCommandLine(argc, argv, kUsage);
  if (!leftovers.ok()) return Refuse(leftovers.status());
  if (!leftovers->empty()) {
    return Refuse(absl::InvalidArgumentError(
        absl::StrCat("'", leftovers->front(),
                     "' is no flag: options look like --epochs=3")));
  }
  const absl::StatusOr<TrainOptions> options = TrainOptionsFromFlags();
  if (!options.ok()) return Refuse(options.status());
  const absl::StatusOr<LaunchPlan> plan =
      ResolveLaunch(LaunchSettingsFromFlags(), Environment::OfProcess());
  if (!plan.ok()) return Fail(plan.status());
  // Before any rank is started: one line, not one a rank.
  const absl::Status fits = CheckLayout(*options, plan->launch.world_size);
  if (!fits.ok()) return Refuse(fits);
  const absl::Status armed = ArmFaultsFromEnvironment();
  if (!armed.ok()) return Fail(armed);
  if (plan->is_launcher) return StartRanks(*plan, *options, argc, argv);
  return RunRank(*options, plan->launch);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }
