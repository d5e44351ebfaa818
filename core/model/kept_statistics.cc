#include "core/model/kept_statistics.h"

#include <c10/util/Exception.h>

#include <utility>

namespace tandem {
namespace {

thread_local KeptStatistics::Recording* recording = nullptr;
thread_local KeptStatistics::Replay* replay = nullptr;

}  // namespace

KeptStatistics::Recording::Recording(KeptStatistics* kept)
    : kept_(kept), outer_(std::exchange(recording, this)) {}

KeptStatistics::Recording::~Recording() { recording = outer_; }

KeptStatistics::Replay::Replay(const KeptStatistics* kept)
    : kept_(kept),
      outer_(std::exchange(replay, this)),
      recording_(std::exchange(recording, nullptr)) {}

KeptStatistics::Replay::~Replay() {
  replay = outer_;
  recording = recording_;
}

std::optional<SharedStatistics> KeptStatistics::Next() {
  if (replay == nullptr) return std::nullopt;
  TORCH_CHECK(replay->next_ < replay->kept_->all_.size(),
              "what is computed again has more layers that share statistics "
              "(SyncBatchNorm) than its first pass: run the same layers");
  return replay->kept_->all_[replay->next_++];
}

void KeptStatistics::Note(const SharedStatistics& statistics) {
  for (Recording* each = recording; each != nullptr; each = each->outer_) {
    each->kept_->all_.push_back(statistics);
  }
}

}  // namespace tandem
