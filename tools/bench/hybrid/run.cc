#include "tools/bench/hybrid/run.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/comparison/contender.h"

namespace tandem {
namespace {

using nlohmann::json;

const char* PeerName(const Layout& layout) {
  const bool pipelined = layout.devices_of_replica() > 1;
  if (layout.replicas == 1) return pipelined ? "pipelining" : "single";
  return pipelined ? "ddp+pipelining" : "ddp";
}

// Can it be reproducible?
absl::StatusOr<bool> IsOrdered(const Setting& setting, const Layout& layout) {
  if (setting.together > 1) return false;
  TANDEM_ASSIGN_OR_RETURN(
      const Schedule schedule,
      MakeSchedule(setting.schedule, {layout.devices_of_replica(),
                                      setting.chunks, setting.microbatches}));
  return OrderOfGradients(schedule) != GradientsCome::kInNoOrder;
}

absl::StatusOr<Setting> FastestOrdered(const std::vector<Setting>& ranking,
                                       const Layout& layout) {
  for (const Setting& each : ranking) {
    TANDEM_ASSIGN_OR_RETURN(const bool ordered, IsOrdered(each, layout));
    if (ordered) return each;
  }
  return absl::InternalError("no setting can be reproducible");
}

// Runs one model's cases.
class ModelRun {
 public:
  ModelRun(const std::string& dtype, bool reproducible,
           const ComparisonOptions& options)
      : reproducible_(reproducible), options_(options), losses_(dtype) {}

  absl::StatusOr<HybridResult> Run(const Case& bench) {
    absl::FPrintF(stderr, "%s: settings\n", bench.name);
    TANDEM_RETURN_IF_ERROR(StartOurs(bench));
    Contender& peer = PeerFor(bench);
    if (!peer.status().ok()) {
      absl::FPrintF(stderr, "%s: %s\n", bench.name, peer.status().message());
    }
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench.name);
    return Measure(bench, peer);
  }

 private:
  // Has one of ours choose, and adds it to ours_.
  absl::Status AddOurs(const Case& bench, const std::string& suffix,
                       const std::vector<Setting>& settings) {
    const Workload& workload = bench.workload;
    ours_.push_back(StartContender(
        absl::StrCat("tandem_", bench.name.substr(workload.model.size() + 1),
                     suffix),
        Program::kTandem, bench, options_));
    return ours_.back().Choose(settings, workload.compared_steps,
                               /*teaches=*/true, losses_);
  }

  absl::Status StartOurs(const Case& bench) {
    ours_.clear();
    TANDEM_RETURN_IF_ERROR(AddOurs(bench, "", bench.ours));
    if (!reproducible_) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(
        Setting setting, FastestOrdered(ours_.front().ranking(), bench.layout));
    TANDEM_RETURN_IF_ERROR(AddOurs(bench, "_plain", {setting}));
    setting.reproducible = true;
    return AddOurs(bench, "_reproducible", {setting});
  }

  // Layouts that are one for the peers share its processes and its choice.
  Contender& PeerFor(const Case& bench) {
    const std::pair<int, int> key = {bench.layout.replicas,
                                     bench.layout.devices_of_replica()};
    const auto known = peers_.find(key);
    if (known != peers_.end()) return known->second;
    Contender peer =
        StartContender(absl::StrCat("pipelining_", key.first, "x", key.second),
                       Program::kPyTorch, bench, options_);
    peer.Choose(bench.peers, bench.workload.compared_steps, /*teaches=*/false,
                losses_)
        .IgnoreError();  // it stays in status()
    return peers_.emplace(key, std::move(peer)).first->second;
  }

  absl::Status TakeAllTurns(const Case& bench, Contender& peer) {
    std::vector<Contender*> all;
    for (Contender& each : ours_) all.push_back(&each);
    all.push_back(&peer);
    // What the peer fails of stays in its status().
    const auto of_ours = [&](const absl::Status& done, Contender& contender) {
      return &contender == &peer ? absl::OkStatus() : done;
    };
    TANDEM_RETURN_IF_ERROR(
        TakeTurns(options_.rounds, all, [&](Contender& each) {
          return of_ours(each.MeasureStep(options_.StepsOf(bench.workload)),
                         each);
        }));
    return TakeTurns(1, all, [&](Contender& each) {
      return of_ours(each.MeasureMemory(), each);
    });
  }

  absl::StatusOr<HybridResult> Measure(const Case& bench, Contender& peer) {
    TANDEM_RETURN_IF_ERROR(TakeAllTurns(bench, peer));
    HybridResult result;
    result.bench = bench;
    if (bench.layout.replicas > 1) {
      TANDEM_ASSIGN_OR_RETURN(
          const std::vector<json> answers,
          ours_.front().Ask(absl::StrCat("overlap ", bench.workload.steps)));
      result.overlap = OverlapOf(answers, bench.layout.pipe);
    }
    result.ours = ours_[0].TakeResult();
    if (reproducible_) {
      result.plain = ours_[1].TakeResult();
      result.reproducible = ours_[2].TakeResult();
    }
    result.peers = {peer.TakeResult()};
    result.peers.front().name = PeerName(bench.layout);
    return result;
  }

  const bool reproducible_;
  const ComparisonOptions& options_;
  // Of the case under way: at its best, and without and with reproducible.
  std::vector<Contender> ours_;
  // By replicas and devices of each.
  std::map<std::pair<int, int>, Contender> peers_;
  KnownLosses losses_;
};

}  // namespace

absl::StatusOr<std::vector<HybridResult>> RunHybridModel(
    const std::vector<Case>& cases, bool reproducible,
    const ComparisonOptions& options) {
  const Workload& workload = cases.front().workload;
  TANDEM_ASSIGN_OR_RETURN(
      const ComparisonOptions own,
      InOwnFolder(options, absl::StrCat(workload.model, "_", workload.dtype)));
  TANDEM_RETURN_IF_ERROR(WriteInputs(cases.front(), own));
  ModelRun run(workload.dtype, reproducible, own);
  std::vector<HybridResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(), run.Run(bench));
  }
  return results;
}

}  // namespace tandem
