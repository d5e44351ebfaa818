#include "tools/bench/comparison/contender.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/process/side.h"

namespace tandem {
namespace {

using nlohmann::json;

// torch.compile takes up to a minute on an idle machine.
constexpr std::chrono::minutes kAnswer(5);
constexpr int kSearchSteps = 3;
constexpr size_t kFew = 4;

}  // namespace

double LossTolerance(const std::string& dtype) {
  return dtype == "fp32" ? 1e-4 : 4e-3;
}

absl::Status CompareLosses(const std::vector<double>& ours,
                           const std::string& peer,
                           const std::vector<double>& peers, double tolerance) {
  if (ours.size() != peers.size()) {
    return absl::InternalError(absl::StrFormat(
        "tandem gave %d losses, %s %d", ours.size(), peer, peers.size()));
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    // False for NaN.
    if (std::abs(ours[i] - peers[i]) <= tolerance * std::abs(peers[i])) {
      continue;
    }
    return absl::InternalError(absl::StrFormat(
        "step %d: tandem's loss is %.9g, %s's is %.9g: they do not train the "
        "same, so their times say nothing",
        i + 1, ours[i], peer, peers[i]));
  }
  return absl::OkStatus();
}

absl::Status KnownLosses::Check(int microbatches, const std::string& peer,
                                const std::vector<double>& losses) const {
  const auto known = losses_.find(microbatches);
  if (known != losses_.end())
    return CompareLosses(known->second, peer, losses, tolerance_);
  return absl::InternalError(absl::StrCat("no losses to compare with for ",
                                          microbatches, " microbatches"));
}

absl::Status KnownLosses::Record(int microbatches, const std::string& name,
                                 const std::vector<double>& losses) {
  losses_.emplace(microbatches, losses);
  return Check(microbatches, name, losses);
}

Contender::Contender(std::string name, std::unique_ptr<Side> side, int replicas)
    : name_(std::move(name)), side_(std::move(side)), replicas_(replicas) {}

Contender::Contender(std::string name, const absl::Status& failure)
    : name_(std::move(name)), status_(failure) {}

absl::Status Contender::Fail(const absl::Status& status) {
  status_.Update(status);
  side_.reset();
  return status_;
}

absl::StatusOr<std::vector<json>> Contender::Ask(const std::string& command) {
  TANDEM_RETURN_IF_ERROR(status_);
  absl::StatusOr<std::vector<json>> answers = side_->Ask(command, kAnswer);
  if (!answers.ok()) return Fail(answers.status());
  return answers;
}

absl::Status Contender::CheckLosses(const Setting& setting, int64_t steps,
                                    bool records, KnownLosses& losses) {
  TANDEM_RETURN_IF_ERROR(Ask("use " + ToString(setting)).status());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("losses ", steps)));
  kernels_ = answers.front().value("kernels", "");
  // Ranks tell their parts of the whole batch's loss.
  const std::vector<double> its_losses = SumOfLists(answers, "losses");
  const int microbatches = replicas_ * setting.microbatches;
  const std::string who = absl::StrCat(name_, " (", ToString(setting), ")");
  return records ? losses.Record(microbatches, who, its_losses)
                 : losses.Check(microbatches, who, its_losses);
}

absl::Status Contender::RecordLosses(const Setting& setting, int64_t steps,
                                     KnownLosses& losses) {
  return CheckLosses(setting, steps, /*records=*/true, losses);
}

// A short try may be unlucky: the fastest are tried again.
absl::Status Contender::Rank(int64_t compared_steps, bool records,
                             KnownLosses& losses, std::vector<Tried>& tried) {
  for (size_t left = tried.size(); left > 0; left = left > kFew ? kFew : 0) {
    for (size_t i = 0; i < left; ++i) {
      TANDEM_RETURN_IF_ERROR(
          CheckLosses(tried[i].setting, compared_steps, records, losses));
      if (tried.size() == 1) return absl::OkStatus();
      TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                              Ask(absl::StrCat("steps ", kSearchSteps)));
      tried[i].ms = std::min(tried[i].ms, Greatest(answers, "ms"));
    }
    std::stable_sort(
        tried.begin(), tried.end(),
        [](const Tried& a, const Tried& b) { return a.ms < b.ms; });
  }
  return Ask("use " + ToString(tried.front().setting)).status();
}

absl::Status Contender::Choose(const std::vector<Setting>& settings,
                               int64_t compared_steps, bool records,
                               KnownLosses& losses) {
  std::vector<Tried> tried;
  for (const Setting& setting : settings) {
    tried.push_back({setting, std::numeric_limits<double>::infinity()});
  }
  const absl::Status done = Rank(compared_steps, records, losses, tried);
  if (!done.ok()) return Fail(done);  // other losses, too, are a failure
  ranking_.clear();
  for (const Tried& each : tried) ranking_.push_back(each.setting);
  result_ = SideResult();
  result_.setting = ranking_.front();
  return absl::OkStatus();
}

absl::Status Contender::MeasureStep(int64_t steps) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("steps ", steps)));
  result_.step_ms.push_back(Greatest(answers, "ms"));
  result_.cpu_ms.push_back(Greatest(answers, "cpu_ms"));
  result_.faults.push_back(Greatest(answers, "faults"));
  return absl::OkStatus();
}

absl::Status Contender::MeasureAlone(int64_t steps) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("alone ", steps)));
  result_.alone_ms.push_back(Mean(answers, "ms"));
  return absl::OkStatus();
}

absl::Status Contender::MeasureCommunication(int64_t steps) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          Ask(absl::StrCat("communication ", steps)));
  result_.comm_ms = Greatest(answers, "comm_ms");
  result_.exposed_ms = Greatest(answers, "exposed_ms");
  return absl::OkStatus();
}

absl::Status Contender::MeasureMemory() {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers, Ask("memory"));
  result_.peak_mib = Greatest(answers, "peak_mib");
  return absl::OkStatus();
}

absl::Status Contender::MeasureFloor() {
  TANDEM_ASSIGN_OR_RETURN(std::vector<json> answers, Ask("floor"));
  MeasuredFloor floor;
  floor.parts = std::move(answers.front());
  floor.products_ms = floor.parts.at("ms");
  floor.moved_bytes = floor.parts.at("bytes");
  floor.gb_per_s = floor.parts.at("gb_per_s");
  result_.floor = std::move(floor);
  return absl::OkStatus();
}

SideResult Contender::TakeResult() {
  SideResult taken = std::exchange(result_, SideResult());
  result_.setting = taken.setting;  // it stays in use
  taken.kernels = kernels_;
  if (!status_.ok()) taken = SideResult();
  taken.name = name_;
  taken.failure = std::string(status_.message());
  return taken;
}

absl::Status TakeTurns(int rounds, const std::vector<Contender*>& contenders,
                       absl::FunctionRef<absl::Status(Contender&)> work) {
  const size_t count = contenders.size();
  for (size_t round = 0; round < static_cast<size_t>(rounds); ++round) {
    for (size_t turn = 0; turn < count; ++turn) {
      Contender& contender = *contenders[(round + turn) % count];
      if (!contender.status().ok()) continue;
      TANDEM_RETURN_IF_ERROR(work(contender));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
