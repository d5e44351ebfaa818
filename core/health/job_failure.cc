#include "core/health/job_failure.h"

#include <utility>
#include <vector>

#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/health/group_member.h"
#include "core/health/job_notes.h"
#include "core/store/store.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// Never serves one: who should, and does not yet, finds nobody there.
absl::StatusOr<StorePtr> Reach(const Launch& launch, milliseconds patience) {
  const Rendezvous& where = launch.rendezvous;
  if (where.kind == Rendezvous::Kind::kFile) {
    return OpenFileStore(where.path, launch.rank, launch.world_size,
                         where.key_prefix, patience);
  }
  const bool would_serve = !where.served_by_launcher && launch.rank == 0;
  TANDEM_ASSIGN_OR_RETURN(
      StorePtr store,
      ConnectTcpStore(where.host, where.port,
                      would_serve ? milliseconds(200) : patience));
  return WithPrefix(std::move(store), where.key_prefix);
}

}  // namespace

absl::Status TellJobOfFailure(const Launch& launch, FailureNote::Kind kind,
                              const std::string& text, milliseconds patience) {
  if (launch.world_size == 1) return absl::OkStatus();
  FailureNote note;
  note.kind = kind;
  note.rank = launch.rank;
  note.text = text;
  TANDEM_ASSIGN_OR_RETURN(StorePtr store, Reach(launch, patience));
  const StorePtr job = WithPrefix(std::move(store), kWorldName);
  std::vector<int> others;
  for (int rank = launch.local_world_size;
       launch.node_rank == 0 && rank < launch.world_size; ++rank) {
    others.push_back(rank);
  }
  return CallWithin<bool>(2 * patience,
                          [=] {
                            NoteInJob(*job, note);
                            NoteHeard(*job, note.rank, others, patience);
                            return true;
                          })
      .status();
}

}  // namespace tandem
