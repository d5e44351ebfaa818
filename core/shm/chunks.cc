#include "core/shm/chunks.h"

#include <glog/logging.h>

#include <algorithm>

#include "core/base/status_macros.h"
#include "core/shm/in_place.h"

namespace tandem {

void ShmChunked::Begin(ShmRounds& rounds) {
  if (note_.offset >= 0) {
    rounds.Arrive(note_);
  } else {
    BeginChunk(rounds);
  }
}

void ShmChunked::BeginChunk(ShmRounds& rounds) {
  Write(rounds, rounds.NextSlot(), begin_, std::min(step_, bytes_ - begin_));
  rounds.Arrive(note_);
}

absl::Status ShmChunked::Finish(ShmRounds& rounds, ShmDeadline deadline) {
  TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  const int in_arenas = CountInArenas(rounds);
  if (in_arenas == rounds.size()) return InPlace(rounds, deadline);
  if (in_arenas > 0) {  // those have written nothing yet
    BeginChunk(rounds);
    TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  }
  for (;;) {
    const size_t n = std::min(step_, bytes_ - begin_);
    Read(rounds, begin_, n);
    begin_ += n;
    if (begin_ == bytes_) return absl::OkStatus();
    BeginChunk(rounds);
    TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  }
}

absl::Status ShmChunked::InPlace(ShmRounds&, ShmDeadline) {
  LOG(FATAL) << "no tensor of this collective lies in an arena";
}

}  // namespace tandem
