// Launch: rank, local rank and world size of this process, and where the ranks
// meet.

#ifndef TANDEM_CORE_LAUNCH_LAUNCH_H_
#define TANDEM_CORE_LAUNCH_LAUNCH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// Where nodes, or tasks of a launcher that has no number for its job, meet
// unless --master_port says otherwise (torchrun's).
constexpr int kDefaultMasterPort = 29500;

// Where ranks meet before they can talk.
struct Rendezvous {
  enum class Kind {
    kNone,  // one rank: nobody to meet
    kTcp,   // a TCPStore at host:port
    kFile,  // a FileStore at path
  };
  Kind kind = Kind::kNone;
  std::string host;
  int port = 0;
  std::string path;
  // True when the launcher serves the TCPStore (torchrun's agent, or our own):
  // every rank is then a client. Else rank 0 serves it.
  bool served_by_launcher = false;
  // What to put before this job's keys, the same on every rank: tells them from
  // the launcher's own, and the attempts of a restarted job apart. Empty:
  // nothing.
  std::string key_prefix;
};

// One rank's place. 0 <= local_rank < local_world_size <= world_size; rank <
// world_size; node_rank < nnodes; rank = node_rank * local_world_size +
// local_rank where nodes are alike (Slurm can number ranks otherwise).
struct Launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int nnodes = 1;
  Rendezvous rendezvous;
  // The launcher that started this rank: "none", "tandem", "torchrun",
  // "environment" (RANK and WORLD_SIZE set by hand), "flags", or whose task
  // it is: "slurm", "openmpi" and others (core/launch/sources.h).
  std::string launcher = "none";
};

// Whether `launcher`'s ranks are tasks, of a scheduler or of an MPI: it may
// bind each to cores of its own, and may start a single one, as a place to work
// in (`srun --pty bash`).
inline bool StartsTasks(absl::string_view launcher) {
  for (const char* other :
       {"none", "tandem", "torchrun", "environment", "flags"}) {
    if (launcher == other) return false;
  }
  return true;
}

// Rank arithmetic where nodes are alike. All arguments count processes or
// nodes; requires 0 <= node_rank and 0 <= local_rank < nproc_per_node.
inline int GridWorldSize(int nnodes, int nproc_per_node) {
  return nnodes * nproc_per_node;
}
inline int GridRank(int node_rank, int nproc_per_node, int local_rank) {
  return node_rank * nproc_per_node + local_rank;
}

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_LAUNCH_H_
