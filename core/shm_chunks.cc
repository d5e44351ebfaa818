#include "core/shm_chunks.h"

#include <algorithm>

#include "core/status_macros.h"

namespace tandem {

void ShmChunked::Begin(ShmRounds& rounds) { BeginChunk(rounds); }

void ShmChunked::BeginChunk(ShmRounds& rounds) {
  Write(rounds, rounds.NextSlot(), begin_, std::min(step_, bytes_ - begin_));
  rounds.Arrive(note_);
}

absl::Status ShmChunked::Finish(ShmRounds& rounds, ShmDeadline deadline) {
  for (;;) {
    TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
    const size_t n = std::min(step_, bytes_ - begin_);
    Read(rounds, begin_, n);
    begin_ += n;
    if (begin_ == bytes_) return absl::OkStatus();
    BeginChunk(rounds);
  }
}

}  // namespace tandem
