#include "core/replace/lost_rank.h"

#include <chrono>
#include <optional>

#include "absl/algorithm/container.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/health/group_member.h"
#include "core/health/job_notes.h"
#include "core/replace/board.h"
#include "core/replace/generation.h"
#include "core/store/store.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(5);

// To the groups of the latest generation. One that is written down after this
// was read sees the death on the board: it stands there already.
void TellGroups(const StorePtr& store, const std::string& job_prefix,
                const Generation& latest, const Death& death) {
  const std::optional<int> place = latest.PlaceOf(death.process);
  if (!place) return;
  FailureNote note;
  note.kind = FailureNote::Kind::kDied;
  note.rank = *place;
  note.text = death.how;
  const StorePtr groups =
      WithPrefix(store, PrefixOfGeneration(job_prefix, latest.number));
  const StorePtr world = WithPrefix(groups, kWorldName);
  NoteInJob(*world, note);
  // Nobody waits for the dead one to hear of it.
  NoteHeard(*world, *place, /*others=*/{}, std::chrono::milliseconds(0));
}

bool Note(const StorePtr& store, const std::string& job_prefix,
          const Death& death) {
  Board board(WithPrefix(store, job_prefix));
  board.NoteDeath(death);
  const std::optional<Generation> latest = board.Latest();
  if (!latest || board.IsFinished()) return false;
  TellGroups(store, job_prefix, *latest, death);
  const Notices notices = board.Read(*latest);
  return absl::c_any_of(latest->members, [&](const Member& each) {
    return !IsDead(each, notices);
  });
}

}  // namespace

absl::StatusOr<bool> NoteLostRank(const Launch& rank, int life,
                                  const std::string& how) {
  const Rendezvous& where = rank.rendezvous;
  TANDEM_ASSIGN_OR_RETURN(const StorePtr store,
                          ConnectTcpStore(where.host, where.port, kPatience));
  const Death death = {{rank.rank, life, kNoState}, how};
  return CallWithin<bool>(kPatience, [store, prefix = where.key_prefix, death] {
    return Note(store, prefix, death);
  });
}

}  // namespace tandem
