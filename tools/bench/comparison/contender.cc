#include "tools/bench/pipeline_contender.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/bench/answers.h"
#include "tools/bench/compare_losses.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::chrono::minutes kAnswer(2);
constexpr int kSearchSteps = 3;
constexpr size_t kFew = 4;

}  // namespace

PipelineContender::PipelineContender(std::string name,
                                     std::unique_ptr<Side> side, int replicas)
    : name_(std::move(name)), side_(std::move(side)), replicas_(replicas) {}

PipelineContender::PipelineContender(std::string name,
                                     const absl::Status& failure)
    : name_(std::move(name)), status_(failure) {}

absl::StatusOr<std::vector<json>> PipelineContender::Ask(
    const std::string& command) {
  TANDEM_RETURN_IF_ERROR(status_);
  absl::StatusOr<std::vector<json>> answers = side_->Ask(command, kAnswer);
  if (!answers.ok()) {
    status_ = answers.status();
    side_.reset();
  }
  return answers;
}

absl::StatusOr<std::vector<double>> PipelineContender::Losses(
    const PipelineSetting& setting, int64_t steps) {
  TANDEM_RETURN_IF_ERROR(Ask("use " + ToString(setting)).status());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("losses ", steps)));
  // One rank of a pipeline sees the loss; the others say 0.
  return SumOfLists(answers, "losses");
}

absl::StatusOr<double> PipelineContender::Try(const PipelineSetting& setting,
                                              int64_t compared_steps,
                                              bool teaches,
                                              LossesByMicrobatches& losses) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> its,
                          Losses(setting, compared_steps));
  const int microbatches = replicas_ * setting.microbatches;
  const auto known = losses.find(microbatches);
  if (known == losses.end() && teaches) losses[microbatches] = its;
  if (known == losses.end() && !teaches) {
    return absl::InternalError(absl::StrCat("no losses to compare with for ",
                                            microbatches, " microbatches"));
  }
  if (known != losses.end()) {
    TANDEM_RETURN_IF_ERROR(CompareLosses(
        known->second, absl::StrCat(name_, " (", ToString(setting), ")"), its));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("steps ", kSearchSteps)));
  return Greatest(answers, "ms");
}

absl::Status PipelineContender::Choose(
    const std::vector<PipelineSetting>& settings, int64_t compared_steps,
    bool teaches, LossesByMicrobatches& losses) {
  result_ = PipelineSideResult();
  std::vector<std::pair<double, PipelineSetting>> tried;
  for (const PipelineSetting& setting : settings) {
    tried.emplace_back(std::numeric_limits<double>::infinity(), setting);
  }
  // A short try may be unlucky: the fastest are tried again.
  for (size_t left = tried.size(); left > 0; left = left > kFew ? kFew : 0) {
    for (size_t i = 0; i < left; ++i) {
      const absl::StatusOr<double> ms =
          Try(tried[i].second, compared_steps, teaches, losses);
      if (!ms.ok()) {
        status_.Update(ms.status());  // other losses, too, are a failure
        side_.reset();
        return status_;
      }
      tried[i].first = std::min(tried[i].first, *ms);
    }
    std::stable_sort(
        tried.begin(), tried.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  ranking_.clear();
  for (const auto& each : tried) ranking_.push_back(each.second);
  result_.setting = ranking_.front();
  return Ask("use " + ToString(result_.setting)).status();
}

absl::Status PipelineContender::MeasureStep(int64_t steps) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("steps ", steps)));
  result_.step_ms.push_back(Greatest(answers, "ms"));
  result_.cpu_ms.push_back(Greatest(answers, "cpu_ms"));
  return absl::OkStatus();
}

absl::Status PipelineContender::MeasureAlone(int64_t steps) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("alone ", steps)));
  result_.alone_ms.push_back(Mean(answers, "ms"));
  return absl::OkStatus();
}

absl::StatusOr<json> PipelineContender::StageTimes(int64_t steps) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("stages ", steps)));
  return answers.front();
}

absl::StatusOr<std::vector<json>> PipelineContender::Overlap(int64_t steps) {
  return Ask(absl::StrCat("overlap ", steps));
}

absl::StatusOr<PipelineSideResult> PipelineContender::TakeResult() {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers, Ask("memory"));
  result_.name = name_;
  result_.peak_mib = Greatest(answers, "peak_mib");
  PipelineSideResult taken = result_;
  // The setting stays in use.
  result_ = PipelineSideResult();
  result_.setting = taken.setting;
  return taken;
}

PipelineSideResult PipelineContender::FailedResult() const {
  PipelineSideResult result;
  result.name = name_;
  result.failure = std::string(status_.message());
  return result;
}

}  // namespace tandem
