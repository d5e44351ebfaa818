#include "core/launch/flags.h"

#include <optional>
#include <string>

#include "absl/flags/flag.h"

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

namespace tandem {

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
  return settings;
}

}  // namespace tandem
