#include "core/run/run_ranks.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/call_within.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/elastic/rank_counts.h"
#include "core/elastic/store_rendezvous.h"
#include "core/files/atomic_file.h"
#include "core/flight/dump_file.h"
#include "core/instrument/fault_point.h"
#include "core/launch/flags.h"
#include "core/launch/launch.h"
#include "core/launch/launcher.h"
#include "core/launch/rank_process.h"
#include "core/launch/resolve_launch.h"
#include "core/launch/restarts.h"
#include "core/process/signal_thread.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "core/program/interrupt.h"
#include "core/program/logging.h"
#include "core/program/openmp_waits.h"
#include "core/program/process.h"
#include "core/replace/job_member.h"
#include "core/run/secret_setup.h"
#include "core/run/setup_failure.h"
#include "core/store/store.h"

namespace tandem {
namespace {

// In the form of the newest release: torchrun takes the failure with the lowest
// timestamp as the root cause, and shows the rest as it is.
std::string ErrorFileContents(const Launch& launch,
                              const absl::Status& status) {
  const std::string message =
      absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                   std::string(status.message()));
  const nlohmann::json extra = {
      {"py_callstack", message},
      {"timestamp", absl::StrCat(absl::ToUnixSeconds(absl::Now()))},
      {"rank", launch.rank},
  };
  const nlohmann::json all = {
      {"message", {{"message", message}, {"extraInfo", extra}}}};
  // Bytes of a path in the message need not be UTF-8.
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status WriteWhole(const std::string& path, const std::string& contents) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                          AtomicFile::Create(path));
  TANDEM_RETURN_IF_ERROR(file->Append(contents));
  return file->Commit();
}

// Writes `status` to the file that TORCHELASTIC_ERROR_FILE names, in the form
// of torch.distributed.elastic.multiprocessing.errors, which torchrun repeats
// as the job's root cause. Does nothing where the variable is not set, or the
// file is there: then something below has told more. A file that cannot be
// written is left out.
void WriteErrorFile(const Launch& launch, const absl::Status& status) {
  const std::optional<std::string> path =
      Environment::OfProcess().Get("TORCHELASTIC_ERROR_FILE");
  struct stat existing = {};
  if (!path.has_value() || stat(path->c_str(), &existing) == 0) return;
  WriteWhole(*path, ErrorFileContents(launch, status)).IgnoreError();
}

// The attempt that the store has after it was told of `next`.
std::string RaiseAttempt(c10d::Store& store, int next) {
  // Beside the attempts' own keys, which have a prefix each.
  constexpr char kKey[] = "tandem/latest_attempt";
  const std::string before = next == 1 ? "" : absl::StrCat(next - 1);
  const std::string after = absl::StrCat(next);
  return store.compareSet(kKey, before, after);
}

// The launchers of a job agree on the attempt that comes next
// (LauncherOptions::next_attempt): `failed` + 1, unless another node has gone
// further by now: then where it is. `node`: any rank of the node. Takes seconds
// at most; an error where the job's store does not answer.
absl::StatusOr<int> AgreeOnAttempt(const Launch& node, int failed) {
  constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(5);
  const Rendezvous& where = node.rendezvous;
  TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                          ConnectTcpStore(where.host, where.port, kPatience));
  TANDEM_ASSIGN_OR_RETURN(
      const std::string latest,
      CallWithin<std::string>(kPatience, [store, next = failed + 1] {
        return RaiseAttempt(*store, next);
      }));
  int attempt = 0;
  if (absl::SimpleAtoi(latest, &attempt) && attempt > failed) return attempt;
  return absl::InternalError(
      absl::StrCat("the store at ", where.host, ":", where.port, " says '",
                   latest, "' for the attempt that follows ", failed));
}

// One line on stderr; the launcher, where there is one, adds the rank.
int Fail(const RanksProgram& program, const absl::Status& status) {
  return Conclude(program.name, status);
}

absl::StatusOr<LaunchPlan> PlanOfProcess() {
  return ResolveLaunch(LaunchSettingsFromFlags(), Environment::OfProcess());
}

// What this node, or rank, refuses: other nodes' ranks would wait for it.
int Refuse(const RanksProgram& program, const absl::Status& status) {
  const int exit_code = Fail(program, status);
  const absl::StatusOr<LaunchPlan> plan = PlanOfProcess();
  // An elastic job goes on without a node that is refused.
  if (!plan.ok() || plan->limits.elastic() ||
      !UseJobSecret(*plan, JobSecretFileFromFlags()).ok()) {
    return exit_code;
  }
  const absl::StatusOr<Launch> launch =
      plan->is_launcher ? LaunchOfRank(*plan, 0, plan->launch.rendezvous.port)
                        : absl::StatusOr<Launch>(plan->launch);
  if (launch.ok()) ReportSetupFailure(*launch, status);
  return exit_code;
}

// The arguments of the ranks that this process may start.
absl::StatusOr<std::vector<std::string>> ReadFlags(
    int argc, char** argv, const RanksProgram& program) {
  TANDEM_ASSIGN_OR_RETURN(CommandLine line,
                          ReadCommandLine(argc, argv, program.flags));
  if (line.positional.empty()) return std::move(line.arguments);
  return absl::InvalidArgumentError(
      absl::StrCat("'", line.positional.front(),
                   "' is no flag: options look like --nproc_per_node=2"));
}

// Arms the faults of a rank that replaces one: of its first, second, ... life
// after that one, with '|' between them.
absl::Status ArmFaultsOfLife(const Environment& env, int life) {
  constexpr char kVariable[] = "TANDEM_REPLACEMENT_FAULT";
  const std::vector<std::string> lives =
      absl::StrSplit(env.Get(kVariable).value_or(""), '|');
  if (static_cast<size_t>(life) > lives.size()) return absl::OkStatus();
  auto faults = ParseFaults(lives[static_cast<size_t>(life) - 1]);
  TANDEM_RETURN_IF_ERROR(Annotate(faults.status(), kVariable));
  ArmFaults(*std::move(faults));
  return absl::OkStatus();
}

// A rehearsed failure comes once: ranks that were started again have none.
absl::Status ArmFaultsOfFirstAttempt() {
  const Environment env = Environment::OfProcess();
  TANDEM_ASSIGN_OR_RETURN(const RestartCount restarts, ReadRestartCount(env));
  TANDEM_ASSIGN_OR_RETURN(const int life, RankLife(env));
  if (restarts.done > 0) return absl::OkStatus();
  return life == 0 ? ArmFaultsFromEnvironment() : ArmFaultsOfLife(env, life);
}

// The job's store is this process's own: who cannot be told cannot go on.
bool Lose(const Launch& rank, int life, const std::string& how) {
  return NoteLostRank(rank, life, how).value_or(false);
}

// With how many ranks an elastic job may run, which its check knows.
absl::StatusOr<std::optional<RankCounts>> ElasticRankCounts(
    const LaunchPlan& plan, const RanksProgram& program) {
  if (!plan.limits.elastic()) return std::optional<RankCounts>();
  const auto fits = [&](int ranks) {
    Launch first = plan.launch;
    first.world_size = ranks;
    return program.check ? program.check(first) : absl::OkStatus();
  };
  const int step = plan.launch.nnodes == 1 ? 1 : plan.launch.local_world_size;
  TANDEM_ASSIGN_OR_RETURN(RankCounts counts,
                          RankCounts::Of(plan.limits, step, fits));
  return std::optional<RankCounts>(std::move(counts));
}

StoreRendezvousOptions NodeRendezvousOptions(const Launch& node, int port,
                                             absl::Duration join_timeout) {
  StoreRendezvousOptions options;
  options.host = node.rendezvous.host;
  options.port = port;
  options.node = node.node_rank;
  options.nnodes = node.nnodes;
  options.coordinator.ranks_per_node = node.local_world_size;
  options.coordinator.join_timeout = absl::ToChronoMilliseconds(join_timeout);
  options.say = &WriteAsLauncher;
  return options;
}

// A launcher's logs have no files: those are its ranks'.
void StartLauncherLogs(const RanksProgram& program) {
  LoggingOptions logging;
  logging.rank = kLauncherLogs;
  // A program's main may have started it.
  InitLogging(program.name, logging).IgnoreError();
}

// Starts this node's ranks, each of which runs this program again.
int StartRanks(const LaunchPlan& plan,
               const std::vector<std::string>& arguments,
               const RanksProgram& program, const GraceSettings& grace) {
  StartLauncherLogs(program);
  auto rank_counts = ElasticRankCounts(plan, program);
  if (!rank_counts.ok()) return Refuse(program, rank_counts.status());
  // For what this process itself asks of the store, which is to be connected.
  static constexpr std::chrono::minutes kTimeout(1);
  LauncherOptions launcher;
  launcher.serve_store = [served = std::make_shared<HostedStore>()](
                             const std::string& host,
                             int port) -> absl::StatusOr<int> {
    TANDEM_ASSIGN_OR_RETURN(*served, ServeTcpStore(host, port, kTimeout));
    return served->port;
  };
  launcher.tell_nodes = &ReportDeath;
  launcher.can_be_lost = program.can_be_lost;
  launcher.lose = &Lose;
  if (program.max_replacements) {
    launcher.max_replacements = program.max_replacements();
  }
  if (launcher.max_replacements > 0 && plan.limits.elastic()) {
    return Refuse(
        program,
        absl::InvalidArgumentError(
            "--replace_replicas has a lost rank come back while other ranks go "
            "on, --min_ranks has all start again with fewer: give one"));
  }
  launcher.next_attempt = &AgreeOnAttempt;
  launcher.rank_counts = *std::move(rank_counts);
  launcher.progress = program.progress;
  launcher.meet_nodes = [&](const Launch& node, int port) {
    return MeetAtStore(*launcher.rank_counts,
                       NodeRendezvousOptions(node, port, grace.join_timeout));
  };
  launcher.refusal_code = kExitRefused;
  launcher.restart_delay = absl::ToChronoMilliseconds(grace.restart_delay);
  launcher.stop_grace = absl::ToChronoMilliseconds(grace.stop_grace);
  if (SpinningWastesCores()) HaveChildrenWaitPassively();
  return RunLauncher(plan, arguments, launcher);
}

// Before a launcher kills this rank, which has yet to say what it waited for.
absl::Duration WaitsAfterInterrupt(absl::Duration stop_grace) {
  return std::max(stop_grace - absl::Seconds(5), stop_grace / 2);
}

int RunRank(const RanksProgram& program, const Launch& launch) {
  SetFaultContext(launch.rank, /*step=*/0);
  HandleFlightSignals();
  const absl::Status status = CatchTorch([&] { return program.run(launch); });
  if (status.ok()) return 0;
  const int signal_number = InterruptSignal();
  if (signal_number == 0) {
    WriteErrorFile(launch, status);
    return Fail(program, status);
  }
  // Whatever broke after the wish to stop, broke because ranks stopped, but for
  // a wait that it ended.
  const absl::Status stopped =
      absl::IsCancelled(status) ? status : InterruptError();
  Fail(program, HasInterruptedWait()
                    ? Annotate(status, absl::StrCat(stopped.message(),
                                                    " while it waited"))
                    : stopped);
  return 128 + signal_number;
}

int Run(int argc, char** argv, const RanksProgram& program) {
  StartSignalThread();
  SetLibTorchLogLevel();
  IgnoreFileSizeSignal();
  IgnoreBrokenConnections();
  RaiseFileLimit();
  const auto arguments = ReadFlags(argc, argv, program);
  if (!arguments.ok()) return Refuse(program, arguments.status());
  const absl::StatusOr<LaunchPlan> plan = PlanOfProcess();
  if (!plan.ok()) return Fail(program, plan.status());
  const absl::Status secret = UseJobSecret(*plan, JobSecretFileFromFlags());
  if (!secret.ok()) return Fail(program, secret);
  if (program.check) {
    const absl::Status checked = program.check(plan->launch);
    if (!checked.ok()) return Refuse(program, checked);
  }
  if (program.instead) {
    const std::optional<absl::Status> done = program.instead(plan->launch);
    if (done.has_value()) return done->ok() ? 0 : Fail(program, *done);
  }
  const absl::Status armed = ArmFaultsOfFirstAttempt();
  if (!armed.ok()) return Fail(program, armed);
  const absl::StatusOr<GraceSettings> grace = GraceSettingsFromFlags();
  if (!grace.ok()) return Refuse(program, grace.status());
  if (plan->is_launcher) {
    return StartRanks(*plan, *arguments, program, *grace);
  }
  SetInterruptGrace(WaitsAfterInterrupt(grace->stop_grace));
  return RunRank(program, plan->launch);
}

}  // namespace

int RunRanks(int argc, char** argv, const RanksProgram& program) {
  // LibTorch throws where a thread cannot be started, above all.
  const absl::StatusOr<int> exit_code =
      CatchTorchOr([&] { return Run(argc, argv, program); });
  return exit_code.ok() ? *exit_code : Fail(program, exit_code.status());
}

}  // namespace tandem
