#include "tools/bench/ddp/suite.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/measure/step_floor.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/side.h"

namespace tandem {
namespace {

constexpr int kRepeats = 5;
constexpr std::chrono::minutes kTimeout(2);

// Milliseconds until `command` prints a line with `mark` in it; then it may end
// by itself.
absl::StatusOr<double> TimeUntil(const std::vector<std::string>& command,
                                 const std::string& mark,
                                 const ComparisonOptions& options) {
  Environment environment = Environment::OfProcess();
  environment.Set("OMP_NUM_THREADS", absl::StrCat(options.threads));
  TANDEM_ASSIGN_OR_RETURN(const JobEnd end,
                          RunJob(command, environment, kTimeout, mark));
  if (end.seconds_to_mark > 0) return 1e3 * end.seconds_to_mark;
  return absl::InternalError(
      absl::StrCat(command.back(), " did not come to its first step"));
}

using nlohmann::json;

constexpr int kUsualRounds = 9;
constexpr int kAloneRounds = 3;
constexpr int kProfiledSteps = 3;
constexpr size_t kOpsShown = 12;
constexpr double kMib = 1 << 20;

constexpr char kCompile[] = "compile";
constexpr char kFindUnused[] = "find_unused";

absl::StatusOr<std::vector<Peer>> PeersFromFlags(const BenchFlags& flags) {
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", flags.peers, {"eager", kCompile, kFindUnused}));
  if (flags.peers.empty()) {
    // torch.compile does not run everywhere.
    return RecipePeers({"eager", kCompile}, Program::kPyTorch, {kCompile});
  }
  std::vector<Peer> peers =
      RecipePeers(flags.peers, Program::kPyTorch, /*may_fail=*/{});
  for (Peer& each : peers) {
    if (each.name == kFindUnused) each.program = Program::kTandem;
  }
  return peers;
}

absl::Status MeasureTimes(const std::vector<Contender*>& all, const Case& bench,
                          const ComparisonOptions& options) {
  const int64_t steps = options.StepsPerRound(bench.workload);
  TANDEM_RETURN_IF_ERROR(TakeTurns(1, all, [&](Contender& each) {
    return each.MeasureCommunication(steps);
  }));
  return TakeTurns(std::min(options.rounds, kAloneRounds), all,
                   [&](Contender& each) { return each.MeasureAlone(steps); });
}

absl::Status MeasureLimits(Contender& ours, DdpResult& result) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> gemm, ours.Ask("gemm"));
  result.mkl_gflops = gemm.front().at("mkl_gflops");
  result.one_dnn_gflops = gemm.front().at("one_dnn_gflops");
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> all_reduce,
                          ours.Ask("all_reduce"));
  result.all_reduce_ms = Greatest(all_reduce, "ms");
  result.gloo_all_reduce_ms = Greatest(all_reduce, "gloo_ms");
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> profile,
                          ours.Ask(absl::StrCat("profile ", kProfiledSteps)));
  result.profile = profile.front();
  return absl::OkStatus();
}

absl::StatusOr<DdpResult> RunDdpCase(const Case& bench,
                                     const std::vector<Peer>& peers,
                                     const ComparisonOptions& options) {
  DdpResult result;
  CaseResult& sides = result;
  TANDEM_ASSIGN_OR_RETURN(
      sides,
      RunCase(bench, peers, KnownLosses(bench.workload.dtype), options,
              [&](const std::vector<Contender*>& all) -> absl::Status {
                TANDEM_RETURN_IF_ERROR(MeasureTimes(all, bench, options));
                return MeasureLimits(*all.front(), result);
              }));
  return result;
}

std::vector<json> BreakdownRow(const CaseResult& result,
                               const SideResult& side) {
  return {result.bench.name,
          side.name,
          Median(side.step_ms),
          Median(side.alone_ms),
          side.comm_ms,
          side.exposed_ms,
          side.comm_ms > 0 ? side.exposed_ms / side.comm_ms : 0.0,
          MedianOrZero(side.cpu_ms),
          MedianOrZero(side.faults)};
}

Table BreakdownTable(const std::vector<DdpResult>& results) {
  Table table = {"breakdown",
                 {{"name"},
                  {"side"},
                  {"step", "ms"},
                  {"alone", "ms"},
                  {"comm", "ms"},
                  {"exposed", "ms"},
                  {"share", "", 2},
                  {"cpu", "ms"},
                  {"faults", "", 0}}};
  for (const DdpResult& result : results) {
    table.Add(BreakdownRow(result, result.ours));
    for (const SideResult& peer : result.peers) {
      if (!peer.failed()) table.Add(BreakdownRow(result, peer));
    }
  }
  return table;
}

Table LimitsTable(const std::vector<DdpResult>& results) {
  Table table = {"limits",
                 {{"name"},
                  {"step", "GFLOP"},
                  {"mkl", "GFLOPS", 0},
                  {"one_dnn", "GFLOPS", 0},
                  {"at_peak", "ms"},
                  {"all_reduce", "ms"},
                  {"gloo_all_reduce", "ms"}}};
  for (const DdpResult& result : results) {
    const double peak = std::max(result.mkl_gflops, result.one_dnn_gflops);
    const Workload& workload = result.bench.workload;
    const double gflop = workload.gflop *
                         static_cast<double>(workload.batch_size) /
                         result.bench.layout.replicas;
    table.Add({result.bench.name, gflop, result.mkl_gflops,
               result.one_dnn_gflops, gflop / peak * 1e3, result.all_reduce_ms,
               result.gloo_all_reduce_ms});
  }
  return table;
}

Table StartupTable(const StartupResult& startup) {
  Table table = {"startup",
                 {{"name"}, {"ours", "ms"}, {"peer", "ms"}, {"ratio", "", 2}}};
  if (startup.peer_ms > 0) {
    table.Add({"start to first step", startup.ours_ms, startup.peer_ms,
               startup.peer_ms / startup.ours_ms});
  }
  return table;
}

// What an operator does, for the profile's sums.
std::string OperatorKind(const std::string& op) {
  if (absl::StrContains(op, "_fused_")) return "optimizer";
  return IsProduct(op) ? "matrices" : "rest";
}

// Processor time of a step by kinds of operators.
std::vector<json> ProfileSums(const DdpResult& result) {
  const double cpu = result.profile.at("cpu_ms");
  std::map<std::string, double> kinds;
  double in_ops = 0;
  for (const json& op : result.profile.at("ops")) {
    const double ms = op.at("ms");
    kinds[OperatorKind(op.at("name"))] += ms;
    in_ops += ms;
  }
  return {result.bench.name,  cpu,           kinds["matrices"],
          kinds["optimizer"], kinds["rest"], cpu - in_ops};
}

}  // namespace

absl::StatusOr<StartupResult> MeasureStartup(int ranks,
                                             const ComparisonOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::string train, Runfile("tools/train"));
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/first_step.py"));
  TANDEM_ASSIGN_OR_RETURN(const std::string python, options.python);
  const std::string nproc = absl::StrCat("--nproc_per_node=", ranks);
  const std::vector<std::string> ours = {
      train,
      nproc,
      "--model=mlp_small",
      "--dataset=synthetic",
      "--synthetic_shape=1,8,8",
      "--synthetic_samples=256",
      absl::StrCat("--batch_size=", 32 * ranks),
      "--max_steps=1",
      "--log_every=1"};
  const std::vector<std::string> peer = {
      "/usr/bin/env", python, "-m",  "torch.distributed.run",
      "--standalone", nproc,  script};
  std::vector<double> our_ms;
  std::vector<double> peer_ms;
  for (int i = 0; i < kRepeats; ++i) {
    std::vector<std::string> command = ours;
    command.push_back(
        absl::StrCat("--save_dir=", options.folder, "/startup_", i));
    TANDEM_ASSIGN_OR_RETURN(our_ms.emplace_back(),
                            TimeUntil(command, "step 1/", options));
    TANDEM_ASSIGN_OR_RETURN(peer_ms.emplace_back(),
                            TimeUntil(peer, "first step done", options));
  }
  return StartupResult{Median(our_ms), Median(peer_ms)};
}

std::vector<Case> DdpCases(int ranks) {
  std::vector<Case> cases;
  for (const char* model : {"mlp_small", "mlp_wide", "resnet18", "gpt_tiny"}) {
    Case made;
    made.name = model;
    made.workload = *WorkloadNamed(model);
    made.workload.batch_size *= ranks;
    made.layout.replicas = ranks;
    made.ours = WithRecipe({Setting()}, "ddp");
    made.ours.push_back(WithRecipe({Setting()}, "static_graph").front());
    cases.push_back(made);
  }
  return cases;
}

std::vector<Table> DdpTables(const std::vector<DdpResult>& results,
                             const StartupResult& startup) {
  std::vector<Table> tables =
      TablesWithMemory({results.begin(), results.end()});
  tables.push_back(BreakdownTable(results));
  tables.push_back(LimitsTable(results));
  tables.push_back(StartupTable(startup));
  return tables;
}

std::vector<Table> ProfileTables(const std::vector<DdpResult>& results) {
  Table sums = {"profile",
                {{"name"},
                 {"cpu", "ms"},
                 {"matrices", "ms"},
                 {"optimizer", "ms"},
                 {"rest", "ms"},
                 {"outside_operators", "ms"}}};
  Table operators = {"operators",
                     {{"name"}, {"ms", "", 3}, {"calls", "", 1}, {"operator"}}};
  Table products = {
      "products",
      {{"name"}, {"ms", "", 3}, {"calls", "", 1}, {"operator"}, {"operands"}}};
  Table passes = {"passes",
                  {{"name"},
                   {"moved", "MiB", 1},
                   {"moving", "ms", 3},
                   {"calls", "", 1},
                   {"operator"}}};
  for (const DdpResult& result : results) {
    const std::string& name = result.bench.name;
    sums.Add(ProfileSums(result));
    const MeasuredFloor& floor = *result.ours.floor;
    for (const json& pass : floor.parts.at("passes")) {
      const double bytes = pass.at("bytes");
      passes.Add({name, bytes / kMib, floor.MovingMs(bytes), pass.at("calls"),
                  pass.at("name")});
    }
    const json& ops = result.profile.at("ops");
    for (size_t i = 0; i < std::min(ops.size(), kOpsShown); ++i) {
      operators.Add(
          {name, ops[i].at("ms"), ops[i].at("calls"), ops[i].at("name")});
    }
    const json& alone = floor.parts.at("products");
    for (size_t i = 0; i < std::min(alone.size(), kOpsShown); ++i) {
      products.Add({name, alone[i].at("ms"), alone[i].at("calls"),
                    alone[i].at("name"), alone[i].at("operands")});
    }
  }
  return {sums, operators, products, passes};
}

absl::StatusOr<SuiteReport> RunDdpSuite(const BenchFlags& flags,
                                        const std::string& folder) {
  const int ranks = flags.ranks.value_or(2);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", ranks, 2));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesFromFlags(DdpCases(ranks), flags));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Peer> peers, PeersFromFlags(flags));
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  options.backend = flags.backend;
  std::vector<DdpResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(),
                            RunDdpCase(bench, peers, options));
  }
  StartupResult startup;
  if (flags.startup) {
    TANDEM_ASSIGN_OR_RETURN(startup, MeasureStartup(ranks, options));
  }
  SuiteReport report;
  report.tables = DdpTables(results, startup);
  if (flags.profile) {
    absl::c_move(ProfileTables(results), std::back_inserter(report.tables));
  }
  return report;
}

}  // namespace tandem
