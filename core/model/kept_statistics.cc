#include "core/model/kept_statistics.h"

#include <c10/util/Exception.h>

namespace tandem {

StatisticsRecording::StatisticsRecording(KeptStatistics* kept)
    : kept_(kept),
      outer_(ComputeContext::Current().recording),
      scope_([this](ComputeContext& context) { context.recording = this; }) {}

StatisticsReplay::StatisticsReplay(const KeptStatistics* kept)
    : kept_(kept), scope_([this](ComputeContext& context) {
        context.replay = this;
        context.recording = nullptr;
      }) {}

std::optional<SharedStatistics> KeptStatistics::Next() {
  StatisticsReplay* const replay = ComputeContext::Current().replay;
  if (replay == nullptr) return std::nullopt;
  TORCH_CHECK(replay->next_ < replay->kept_->all_.size(),
              "what is computed again has more layers that share statistics "
              "(SyncBatchNorm) than its first pass: run the same layers");
  return replay->kept_->all_[replay->next_++];
}

void KeptStatistics::Note(const SharedStatistics& statistics) {
  for (StatisticsRecording* each = ComputeContext::Current().recording;
       each != nullptr; each = each->outer_) {
    each->kept_->all_.push_back(statistics);
  }
}

}  // namespace tandem
