// Who am I: this process among the ranks of a job.

#ifndef TANDEM_CORE_LAUNCH_H_
#define TANDEM_CORE_LAUNCH_H_

#include <string>

namespace tandem {

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
  // Put before every key: tells the attempts of a restarted job apart on a
  // store that outlives them. The same on every rank.
  std::string key_prefix;
};

// One rank's place. 0 <= local_rank < local_world_size; rank < world_size;
// rank = node_rank * nproc_per_node + local_rank where nodes are alike.
struct Launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int nnodes = 1;
  Rendezvous rendezvous;
  // Who started this rank: "none", "tandem", "torchrun", "slurm", "openmpi",
  // "flags".
  std::string launcher = "none";
};

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_H_
