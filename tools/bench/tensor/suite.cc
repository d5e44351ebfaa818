#include "tools/bench/tensor/suite.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

constexpr int kUsualRounds = 7;
constexpr char kOurOther[] = "tandem, tokens not divided";
constexpr char kPeer[] = "parallelize_module";

struct SharedModel {
  const char* name;
  int heads;  // or key-value heads
};

constexpr SharedModel kModels[] = {
    {"gpt_tiny", 4}, {"gpt_baby", 6}, {"llama_baby", 4}};

const std::vector<std::string>& Ways() {
  static const auto* const ways =
      new std::vector<std::string>{"tensor",
                                   "tensor_loss",
                                   "tensor_sequence",
                                   "tensor_sequence_loss",
                                   "tensor_compile",
                                   "tensor_loss_compile",
                                   "tensor_sequence_compile",
                                   "tensor_sequence_loss_compile"};
  return *ways;
}

bool IsOurs(const SideResult& side) { return side.name == kOurOther; }

bool IsFaster(const SideResult& one, const SideResult& other) {
  return Median(one.step_ms) < Median(other.step_ms);
}

// The fastest way of each side, and the peer's that failed.
CaseResult Fastest(const CaseResult& all) {
  CaseResult fastest = {all.bench, all.ours, {}};
  const SideResult* peer = nullptr;
  for (const SideResult& side : all.peers) {
    if (side.failed()) {
      fastest.peers.push_back(side);
    } else if (!IsOurs(side)) {
      if (peer == nullptr || IsFaster(side, *peer)) peer = &side;
    } else if (IsFaster(side, fastest.ours)) {
      fastest.ours.step_ms = side.step_ms;
      fastest.ours.peak_mib = side.peak_mib;
    }
  }
  if (peer == nullptr) return fastest;
  fastest.peers.push_back(*peer);
  fastest.peers.back().name = kPeer;
  return fastest;
}

void AddWay(const CaseResult& result, const SideResult& side, Table* ways) {
  if (side.failed()) return;
  const bool is_ours = &side == &result.ours || IsOurs(side);
  ways->Add({result.bench.name, is_ours ? "tandem" : kPeer, side.setting.recipe,
             Median(side.step_ms),
             *std::min_element(side.step_ms.begin(), side.step_ms.end()),
             *std::max_element(side.step_ms.begin(), side.step_ms.end()),
             side.peak_mib});
}

}  // namespace

std::vector<Case> TensorCases(int ranks) {
  std::vector<Case> cases;
  for (const SharedModel& model : kModels) {
    Case made;
    made.name = model.name;
    made.workload = *WorkloadNamed(model.name);
    if (model.heads % ranks != 0) continue;
    if (made.workload.input_shape.front() % ranks != 0) continue;
    made.workload.batch_size *= ranks;
    made.layout.pipe = ranks;
    made.ours = WithRecipe({Setting()}, kTensorSequenceRecipe);
    cases.push_back(made);
  }
  return cases;
}

std::vector<Peer> TensorPeers(const std::vector<std::string>& ways) {
  std::vector<Peer> peers = {
      {kOurOther, Program::kTandem, WithRecipe({Setting()}, kTensorRecipe)}};
  for (Peer& each : RecipePeers(ways.empty() ? Ways() : ways, Program::kPyTorch,
                                /*may_fail=*/{})) {
    each.may_fail = ways.empty() && absl::StrContains(each.name, "compile");
    peers.push_back(std::move(each));
  }
  return peers;
}

std::vector<Table> TensorTables(const std::vector<CaseResult>& results) {
  Table ways = {"ways",
                {{"name"},
                 {"side"},
                 {"way"},
                 {"step", "ms"},
                 {"least", "ms"},
                 {"greatest", "ms"},
                 {"peak", "MiB", 0}}};
  std::vector<CaseResult> fastest;
  for (const CaseResult& result : results) {
    fastest.push_back(Fastest(result));
    AddWay(result, result.ours, &ways);
    for (const SideResult& side : result.peers) AddWay(result, side, &ways);
  }
  std::vector<Table> tables = TablesWithMemory(fastest);
  tables.push_back(std::move(ways));
  return tables;
}

absl::StatusOr<SuiteReport> RunTensorSuite(const BenchFlags& flags,
                                           const std::string& folder) {
  const int ranks = flags.ranks.value_or(2);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", ranks, 2));
  TANDEM_RETURN_IF_ERROR(CheckAmong("peers", flags.peers, Ways()));
  const std::vector<Case> all = TensorCases(ranks);
  if (all.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks=", ranks,
        " divides the heads and tokens of no model of this suite"));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesFromFlags(all, flags));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<CaseResult> results,
      RunCases(cases, TensorPeers(flags.peers), flags, kUsualRounds, folder));
  return SuiteReport{TensorTables(results)};
}

}  // namespace tandem
