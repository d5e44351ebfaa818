// Board of a job whose lost ranks are replaced: what its ranks and its launcher
// tell each other on the store, which outlives all ranks.

#ifndef TANDEM_CORE_REPLACE_BOARD_H_
#define TANDEM_CORE_REPLACE_BOARD_H_

#include <optional>
#include <string>

#include "core/replace/generation.h"
#include "core/store/store.h"

namespace tandem {

// Keys that are only ever written once, lists that only grow, and one record,
// the latest generation, that goes from one value to the next for whoever comes
// first. So every reader decides the same, whenever it looks.
//
// All methods throw what the store throws.
class Board {
 public:
  // `job`: keys of the job's attempt (Rendezvous::key_prefix).
  explicit Board(StorePtr job);

  // The latest; none: the job has not begun to train.
  std::optional<Generation> Latest();
  // Makes `next` the latest unless another has followed `now`, and returns what
  // is. `now` may be null: the first one.
  Generation Follow(const Generation* now, const Generation& next);

  void NoteReady(const Generation& now, const Member& member);
  void NoteWaiting(const Member& process);
  void NoteDeath(const Death& death);
  // `now`: whose ready members are meant.
  Notices Read(const Generation& now);

  // The job has done all that it was to do.
  void NoteFinished();
  bool IsFinished();

 private:
  void Append(const std::string& list, const std::string& text);

  StorePtr store_;
};

// What stands before the keys of a generation's groups on the job's store,
// behind `job_prefix`.
std::string PrefixOfGeneration(const std::string& job_prefix, int number);

}  // namespace tandem

#endif  // TANDEM_CORE_REPLACE_BOARD_H_
