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
          "(torchrun's). train continues from the newest checkpoint in "
          "--save_dir. After refused flags, or a signal that stops the "
          "launcher or a rank, there is no restart. Not given: 0.");
ABSL_FLAG(std::optional<int>, min_ranks, std::nullopt,
          "Elastic job: the fewest ranks with which it may continue after a "
          "restart (--max_restarts). On one node it leaves out a rank that "
          "cannot be started, or was the first to die in two attempts in a "
          "row without a checkpoint in between; on several, nodes that are "
          "gone. --batch_size is of all ranks together and stays. Not given: "
          "the number of ranks never changes.");
ABSL_FLAG(std::optional<int>, max_ranks, std::nullopt,
          "With --min_ranks: how many ranks an elastic job has at most. Not "
          "given: --nproc_per_node on each of --nnodes.");
ABSL_FLAG(double, join_timeout, 30,
          "With --min_ranks and --nnodes: seconds that an elastic job's first "
          "attempt waits for more nodes, once there are enough. When a node "
          "comes later, the job saves a checkpoint and continues with it.");
ABSL_FLAG(double, restart_delay, 1,
          "Seconds to wait before the first of --max_restarts; each further "
          "one waits twice as long as the one before, up to a minute.");
ABSL_FLAG(
    double, stop_grace, 30,
    "Seconds that ranks have to save a checkpoint and end after SIGINT "
    "(Ctrl-C), SIGTERM or SIGHUP, before their launcher kills them. The same "
    "signal again, 2 s later or more, kills them at once. SIGUSR1 sets no "
    "limit. A rank that still waits for another one 5 s before the end, or "
    "after half of a shorter time, gives up.");

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
