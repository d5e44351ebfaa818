// Trains a model, on one rank or on many. docs/training.md, or --help.
//
// Top to bottom: flags, who am I, (as a launcher: start the ranks,) the job,
// the loop.

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/launch/launch.h"
#include "core/program/interrupt.h"
#include "core/program/logging.h"
#include "core/run/run_ranks.h"
#include "tools/trainer/job/job.h"
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

absl::StatusOr<Report> OpenReport(const Job& job) {
  if (!job.speaks()) return Report::Silent();
  TANDEM_ASSIGN_OR_RETURN(MetricsFile metrics,
                          MetricsFile::Open(job.options.metrics_file));
  return Report::Speaking(std::move(metrics));
}

absl::Status StartLogging(const TrainOptions& options, const Launch& launch) {
  LoggingOptions logging;
  logging.rank = launch.rank;
  logging.log_dir = options.log_dir;
  return Annotate(InitLogging("train", logging),
                  absl::StrCat("--log_dir=", options.log_dir));
}

// Before any rank is started: one line, not one a rank.
absl::Status CheckSettings(const Launch& first) {
  TANDEM_ASSIGN_OR_RETURN(const TrainOptions options, TrainOptionsFromFlags());
  return CheckLayout(options, first.world_size);
}

absl::Status TrainAsRank(const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const TrainOptions options, TrainOptionsFromFlags());
  TANDEM_RETURN_IF_ERROR(StartLogging(options, launch));
  TANDEM_ASSIGN_OR_RETURN(Job job, SetUpJob(options, launch));
  TANDEM_ASSIGN_OR_RETURN(Report report, OpenReport(job));
  // From here on there is a loop that looks; until here a signal just ends us.
  HandleInterrupts();
  return RunJob(job, report);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunRanks(
      argc, argv,
      {"train", tandem::kUsage, tandem::CheckSettings, tandem::TrainAsRank});
}
