#include "core/launch/launch.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::string DescribeRendezvous(const Rendezvous& rendezvous) {
  switch (rendezvous.kind) {
    case Rendezvous::Kind::kNone:
      return "no store";
    case Rendezvous::Kind::kTcp:
      return absl::StrCat("store at ", rendezvous.host, ":", rendezvous.port);
    case Rendezvous::Kind::kFile:
      return absl::StrCat("store in ", rendezvous.path);
  }
  return "";
}

}  // namespace

bool StartsTasks(absl::string_view launcher) {
  for (const char* other :
       {"none", "tandem", "torchrun", "environment", "flags"}) {
    if (launcher == other) return false;
  }
  return true;
}

std::string DescribeLaunch(const Launch& launch) {
  return absl::StrCat("rank ", launch.rank, " of ", launch.world_size,
                      " (local rank ", launch.local_rank, " of ",
                      launch.local_world_size, ", node ", launch.node_rank,
                      " of ", launch.nnodes, ", started by ", launch.launcher,
                      ", ", DescribeRendezvous(launch.rendezvous), ")");
}

}  // namespace tandem
