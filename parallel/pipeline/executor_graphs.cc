// What an executor has its devices replay.

#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/graph/capture.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/step.h"

namespace tandem {

void PipelineExecutor::CaptureMicrobatches() {
  CHECK(options_.sides != nullptr);
  for (const auto& stage : captured_) {
    if (stage != nullptr) stage->TurnOn();
  }
}

void PipelineExecutor::BeginCaptured(int microbatches) {
  for (const auto& local : locals_) {
    for (const int i : schedule_.stages_of[static_cast<size_t>(local->index)]) {
      captured_[static_cast<size_t>(i)]->Begin(*local->actions, i,
                                               microbatches);
    }
  }
}

std::string PipelineExecutor::DescribeGraphs() const {
  int graphs = 0;
  std::vector<std::string> off;
  for (size_t i = 0; i < captured_.size(); ++i) {
    if (captured_[i] == nullptr) continue;
    graphs += captured_[i]->graphs();
    const std::string& why = captured_[i]->why_off();
    if (!why.empty()) off.push_back(absl::StrCat("stage ", i, ": ", why));
  }
  const std::string whys = absl::StrJoin(off, "; ");
  if (graphs == 0) return off.empty() ? "" : absl::StrCat("off: ", whys);
  return absl::StrCat("middle microbatches captured after ",
                      kStepsBeforeCapture, " steps",
                      off.empty() ? "" : "; off in ", whys);
}

int64_t PipelineExecutor::replays() const {
  int64_t replays = 0;
  for (const auto& stage : captured_) {
    if (stage != nullptr) replays += stage->replays();
  }
  return replays;
}

}  // namespace tandem
