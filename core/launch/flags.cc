#include "core/launch/flags.h"

#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"

ABSL_FLAG(std::optional<int>, nproc_per_node, std::nullopt,
          "Start this many ranks (processes) on this node. Not given: this "
          "process is one rank, of a launcher if there is one around it, else "
          "alone.");
ABSL_FLAG(std::optional<int>, nnodes, std::nullopt,
          "How many nodes the job has; the program is started once on each. "
          "Not given: 1.");
ABSL_FLAG(std::optional<int>, node_rank, std::nullopt,
          "Which of the --nnodes nodes this is, from 0. Node 0 serves the "
          "store where ranks meet.");
ABSL_FLAG(std::optional<std::string>, master_addr, std::nullopt,
          "Host name or address of the store where ranks meet: node 0's. Not "
          "given: 127.0.0.1 on one node, MASTER_ADDR or the first node of the "
          "Slurm step on several.");
ABSL_FLAG(std::optional<int>, master_port, std::nullopt,
          "Port of the store where ranks meet. Not given, or 0: any free one "
          "on one node, 29500 on several, one computed from the job's number "
          "under srun and mpirun.");
ABSL_FLAG(std::optional<int>, world_size, std::nullopt,
          "How many ranks the job has; for ranks that are started by hand, "
          "with --rank. Counts processes, not nodes.");
ABSL_FLAG(std::optional<int>, rank, std::nullopt,
          "Which of the --world_size ranks this process is, from 0. Counts "
          "processes, not nodes.");
ABSL_FLAG(std::optional<int>, local_rank, std::nullopt,
          "Which of the ranks on its node this process is, from 0. Not given: "
          "worked out from --rank and --nnodes.");
ABSL_FLAG(std::optional<std::string>, dist_url, std::nullopt,
          "Where ranks meet, as PyTorch's init_method: env:// (the "
          "environment's MASTER_ADDR and MASTER_PORT), tcp://HOST:PORT, or "
          "file:///PATH (a file that every rank reaches and that does not yet "
          "exist).");

ABSL_FLAG(std::string, job_secret_file, "",
          "File with the job's secret, the same on all nodes, that this user "
          "alone can read (chmod 600): 16 to 4096 bytes. A process without it "
          "cannot use the store where ranks meet. Not given: the variable "
          "TANDEM_JOB_SECRET_FILE, else a new secret on one node with "
          "--nproc_per_node, and none otherwise.");

ABSL_FLAG(std::optional<int>, max_restarts, std::nullopt,
          "How often to start all ranks again after one has died, in all "
          "(torchrun's). train then goes on from the newest checkpoint in "
          "--save_dir. A rank that refused its flags, or a signal that stops "
          "the launcher or a rank, starts nobody again. Not given: 0.");
ABSL_FLAG(std::optional<int>, min_ranks, std::nullopt,
          "An elastic job: with how few ranks it may go on when it is started "
          "again (--max_restarts) and not all can be. On one node: without a "
          "rank that cannot be started, or was the first to die in two "
          "attempts in a row without a checkpoint in between. On several: "
          "without nodes that are gone. --batch_size is of all ranks together "
          "and stays. Not given: the number of ranks never changes.");
ABSL_FLAG(std::optional<int>, max_ranks, std::nullopt,
          "With --min_ranks: how many ranks an elastic job has at most. Not "
          "given: --nproc_per_node on each of --nnodes.");
ABSL_FLAG(double, join_timeout, 30,
          "With --min_ranks and --nnodes: seconds that an elastic job's first "
          "attempt waits for more nodes, once there are enough of them. A node "
          "that comes later has the job stop after a step, with a checkpoint, "
          "and go on with it.");
ABSL_FLAG(double, restart_delay, 1,
          "Seconds to wait before the first of --max_restarts; each further "
          "one waits twice as long as the one before, up to a minute.");
ABSL_FLAG(
    double, stop_grace, 30,
    "Seconds that ranks have to end after SIGINT (Ctrl-C), SIGTERM or SIGHUP, "
    "before their launcher kills them: train saves a checkpoint in it. The "
    "same signal again, 2 s later or more, kills them at once. "
    "After SIGUSR1 nobody is killed, and no wait is given up. A rank that "
    "waits for another one gives up 5 s before, or after half of it.");

namespace tandem {
namespace {

constexpr double kDay = 24 * 60 * 60;

}  // namespace

LaunchSettings LaunchSettingsFromFlags() {
  LaunchSettings settings;
  settings.nnodes = absl::GetFlag(FLAGS_nnodes);
  settings.node_rank = absl::GetFlag(FLAGS_node_rank);
  settings.nproc_per_node = absl::GetFlag(FLAGS_nproc_per_node);
  settings.master_addr = absl::GetFlag(FLAGS_master_addr);
  settings.master_port = absl::GetFlag(FLAGS_master_port);
  settings.world_size = absl::GetFlag(FLAGS_world_size);
  settings.rank = absl::GetFlag(FLAGS_rank);
  settings.local_rank = absl::GetFlag(FLAGS_local_rank);
  settings.dist_url = absl::GetFlag(FLAGS_dist_url);
  settings.max_restarts = absl::GetFlag(FLAGS_max_restarts);
  settings.min_ranks = absl::GetFlag(FLAGS_min_ranks);
  settings.max_ranks = absl::GetFlag(FLAGS_max_ranks);
  return settings;
}

FlagGroup LaunchFlags() {
  return {"Launch",
          {{"nproc_per_node", true},
           {"nnodes", true},
           {"node_rank", true},
           {"master_addr", true},
           {"master_port"},
           {"max_restarts", true},
           {"min_ranks"},
           {"max_ranks"},
           {"join_timeout"},
           {"restart_delay"},
           {"stop_grace"},
           {"job_secret_file", false, {}, /*is_path=*/true},
           {"world_size"},
           {"rank"},
           {"local_rank"},
           {"dist_url"}}};
}

std::string JobSecretFileFromFlags() {
  return absl::GetFlag(FLAGS_job_secret_file);
}

absl::StatusOr<GraceSettings> GraceSettingsFromFlags() {
  GraceSettings settings;
  const auto read = [](const char* name, double seconds,
                       absl::Duration& duration) {
    if (!(0 <= seconds && seconds <= kDay)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "=", seconds,
                       ": expected seconds, from 0 to ", kDay, " (a day)"));
    }
    duration = absl::Seconds(seconds);
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(read("restart_delay",
                              absl::GetFlag(FLAGS_restart_delay),
                              settings.restart_delay));
  TANDEM_RETURN_IF_ERROR(read("join_timeout", absl::GetFlag(FLAGS_join_timeout),
                              settings.join_timeout));
  TANDEM_RETURN_IF_ERROR(
      read("stop_grace", absl::GetFlag(FLAGS_stop_grace), settings.stop_grace));
  return settings;
}

}  // namespace tandem
