#include "core/run/run_program.h"

#include <memory>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/program/logging.h"
#include "core/program/openmp_waits.h"
#include "core/program/process.h"
#include "core/run/flight_dumps.h"
#include "core/run/run_ranks.h"

namespace tandem {
namespace {

constexpr int kMostThreads = 1024;

absl::Status PrepareProcess(const RunOptions& options, const Launch& launch) {
  LoggingOptions logging;
  logging.rank = launch.rank;
  TANDEM_RETURN_IF_ERROR(InitLogging(options.name, logging));
  TANDEM_ASSIGN_OR_RETURN(
      const int requested,
      RequestedThreads(options.intra_op_threads, kMostThreads));
  CoreSharing sharing;
  sharing.ranks = launch.local_world_size;
  ConfigureProcess(IntraOpThreads(requested, sharing));
  return absl::OkStatus();
}

absl::Status RunConnected(const RunOptions& options, const Launch& launch,
                          const std::function<absl::Status(Rank& rank)>& run) {
  TANDEM_RETURN_IF_ERROR(PrepareProcess(options, launch));
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> world,
      Communicator::ForLaunch(launch, options.communication));
  TANDEM_RETURN_IF_ERROR(StartFlightDumps(*world, /*folder=*/""));
  Rank rank{launch, *world};
  const absl::Status status = CatchTorch([&] { return run(rank); });
  if (!status.ok()) world->Abort(status);
  return status;
}

}  // namespace

int RunProgram(int argc, char** argv, const RunOptions& options,
               const std::function<absl::Status(Rank& rank)>& run) {
  WaitPassivelyWhereBusy(argc, argv);
  RanksProgram program;
  program.name = options.name;
  program.flags.usage = options.usage;
  program.check = options.check;
  program.run = [&](const Launch& launch) {
    return RunConnected(options, launch, run);
  };
  return RunRanks(argc, argv, program);
}

}  // namespace tandem
