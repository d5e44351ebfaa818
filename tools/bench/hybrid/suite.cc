#include "tools/bench/hybrid/suite.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

struct NamedLayout {
  const char* name;
  Layout layout;
};

constexpr NamedLayout kLayouts[] = {{"1x1", {1, 1, 1}},
                                    {"2x1", {2, 1, 1}},
                                    {"1x2", {1, 1, 2}},
                                    {"2x2", {2, 1, 2}},
                                    {"2x2_ranks", {2, 2, 1}}};

void Append(std::vector<Setting> more, std::vector<Setting>* settings) {
  settings->insert(settings->end(), more.begin(), more.end());
}

// Without a pipeline there is nothing to cut, and one schedule does.
std::vector<Setting> WithoutStages(int64_t samples) {
  std::vector<Setting> settings;
  for (int microbatches : {1, 2, 4}) {
    if (microbatches <= samples) {
      settings.push_back({"1f1b", 1, microbatches, "uniform"});
    }
  }
  return settings;
}

std::vector<Setting> Ours(const Layout& layout, int64_t samples) {
  if (layout.devices_of_replica() == 1) return WithoutStages(samples);
  std::vector<Setting> settings;
  for (const auto& [schedule, chunks] : {std::pair<const char*, int>{"1f1b", 1},
                                         {"interleaved_1f1b", 2},
                                         {"zb_h1", 1},
                                         {"zb_v", 2}}) {
    Append(SettingChoices(schedule, {chunks}, {2, 4}, samples), &settings);
  }
  return WithWeightsTogether(std::move(settings));
}

std::vector<Setting> Peers(const Layout& layout, int64_t samples) {
  const bool pipelined = layout.devices_of_replica() > 1;
  std::vector<Setting> settings;
  std::vector<Setting> split;
  if (pipelined) {
    Append(SettingChoices("1f1b", {1}, {2, 4}, samples), &settings);
    Append(SettingChoices("interleaved_1f1b", {2}, {2, 4}, samples), &settings);
    Append(SettingChoices("zero_bubble", {1, 2}, {2, 4}, samples), &split);
  } else {
    settings = WithoutStages(samples);
  }
  if (layout.replicas == 1) {
    Append(split, &settings);
    return settings;
  }
  std::vector<Setting> all = WithRecipe(settings, "ddp");
  Append(WithRecipe(settings, "flat"), &all);
  Append(WithRecipe(split, "flat"), &all);
  return all;
}

}  // namespace

std::vector<Case> CasesInLayouts(const Workload& workload) {
  std::vector<Case> cases;
  for (const auto& [name, layout] : kLayouts) {
    const int64_t samples = workload.batch_size / layout.replicas;
    cases.push_back({absl::StrCat(workload.model, "/", name), workload, layout,
                     Ours(layout, samples), Peers(layout, samples)});
  }
  return cases;
}

std::vector<Case> HybridCases() {
  std::vector<Case> cases;
  for (const Workload& workload :
       {WithSgd(*WorkloadNamed("mlp_deep"), 3, 4),
        WithSgd(*WorkloadNamed("gpt_tiny"), 0.5, 3),
        WithSgd(*WorkloadNamed("resnet18"), 0.001, 2)}) {
    for (Case& each : CasesInLayouts(workload)) {
      cases.push_back(std::move(each));
    }
  }
  return cases;
}

namespace {

using nlohmann::json;

constexpr int kUsualRounds = 7;

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
                               /*records=*/true, losses_);
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
    peer.Choose(bench.peers, bench.workload.compared_steps, /*records=*/false,
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
          return of_ours(
              each.MeasureStep(options_.StepsPerRound(bench.workload)), each);
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
      result.overlap = AllReduceOverlap(answers, bench.layout.pipe);
    }
    TANDEM_RETURN_IF_ERROR(ours_.front().MeasureFloor());
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
  // Contenders of the case under way: at its best, and without and with
  // reproducible.
  std::vector<Contender> ours_;
  // By replicas and devices of each.
  std::map<std::pair<int, int>, Contender> peers_;
  KnownLosses losses_;
};

// Runs cases of one model, in a folder of its own. All contenders begin from
// the same weights and batches; each tries its settings, whose losses are
// compared before they are timed, and keeps the fastest; then they take turns,
// among them with `reproducible` tandem with and without that flag. Prints what
// it does on stderr.
//
// An error when one of tandem's fails. A peer that fails, or whose losses
// differ, has no figures: its results say why.
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

Table ReproducibleTable(const std::vector<HybridResult>& results) {
  Table table = {"reproducible",
                 {{"name"},
                  {"without", "ms"},
                  {"with", "ms"},
                  {"cost"},
                  {"cost_min"},
                  {"cost_max"},
                  {"cost_of_fastest"},
                  {"setting"}}};
  for (const HybridResult& result : results) {
    const std::vector<double>& with = result.reproducible.step_ms;
    if (with.empty()) continue;
    const Ratio cost = PairedRatio(with, result.plain.step_ms);
    table.Add({result.bench.name, Median(result.plain.step_ms), Median(with),
               cost.ratio - 1, cost.min - 1, cost.max - 1,
               PairedRatio(with, result.ours.step_ms).ratio - 1,
               ToString(result.plain.setting)});
  }
  return table;
}

Table OverlapTable(const std::vector<HybridResult>& results) {
  Table table = {
      "overlap",
      {{"name"}, {"all_reduce", "ms"}, {"hidden", "ms"}, {"share", "", 2}}};
  for (const HybridResult& result : results) {
    const OverlapTimes& times = result.overlap;
    if (times.all_reduce_ms == 0) continue;
    table.Add({result.bench.name, times.all_reduce_ms, times.hidden_ms,
               times.share()});
  }
  return table;
}

}  // namespace

std::vector<Table> HybridTables(const std::vector<HybridResult>& results) {
  CaseTables cases({{"ours", "MiB", 0},
                    {"peer", "MiB", 0},
                    {"ours_setting"},
                    {"peer_setting"}});
  for (const HybridResult& result : results) {
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      return {result.ours.peak_mib, peer.peak_mib,
              ToString(result.ours.setting), ToString(peer.setting)};
    });
  }
  std::vector<Table> tables = cases.tables();
  tables.push_back(ReproducibleTable(results));
  tables.push_back(OverlapTable(results));
  return tables;
}

absl::StatusOr<SuiteReport> RunHybridSuite(const BenchFlags& flags,
                                           const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesFromFlags(HybridCases(), flags));
  TANDEM_ASSIGN_OR_RETURN(const ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  const std::vector<std::vector<Case>> models = ByModel(cases);
  std::vector<HybridResult> results;
  for (const std::vector<Case>& model : models) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<HybridResult> of_model,
                            RunHybridModel(model, flags.reproducible, options));
    // Shown as soon as a model is through: a run of all takes a while.
    if (models.size() > 1) ShowTables(HybridTables(of_model));
    absl::c_move(of_model, std::back_inserter(results));
  }
  SuiteReport report;
  report.tables = HybridTables(results);
  if (absl::c_any_of(results, HasFailures)) {
    report.status = absl::UnavailableError("a peer has no figures: see above");
  }
  return report;
}

}  // namespace tandem
