#include "tools/bench/gpt/suite.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "models/transformer/sizes.h"
#include "models/transformer/training_memory.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/hybrid/suite.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

// PyTorch's name for two of ours.
std::string OurName(const Setting& setting) {
  if (setting.schedule != "zero_bubble") return setting.schedule;
  return setting.chunks == 1 ? "zb_h1" : "zb_v";
}

DeviceWork LargestDeviceWork(const Workload& workload, const Layout& layout,
                             const Setting& setting) {
  DeviceWork work;
  // The greater ones where they do not divide.
  const int64_t parts = int64_t{layout.replicas} * setting.microbatches;
  work.samples = (workload.batch_size + parts - 1) / parts;
  work.tokens = workload.input_shape.front();
  work.element_bytes = workload.dtype == "fp32" ? 4 : 2;
  work.optimizer_bytes = workload.optimizer == "adamw" ? 8 : 4;
  return work;
}

// Layers of one stage, of `held` activations of the device's `chunks` stages,
// which hold their microbatches alike.
int64_t StageMemoryBytes(const GptOptions& model, DeviceWork work,
                         const LayerRange& layers, int held, int chunks) {
  work.first_layer = layers.begin;
  work.end_layer = layers.end;
  const TrainingMemory memory = MemoryOf(model, work);
  return memory.total() + memory.activations * (held - chunks) / chunks;
}

std::vector<int64_t> DeviceMemoryBytes(const GptOptions& model,
                                       const DeviceWork& work,
                                       const Schedule& schedule,
                                       const std::vector<int>& held,
                                       int chunks) {
  // Embeddings, blocks, norm and head.
  const int64_t layers = model.layers + 4;
  const std::vector<LayerRange> stages =
      LayerRanges(*UniformCuts(layers, schedule.stages), layers);
  const std::vector<int> device_of = DevicesOfStages(schedule);
  std::vector<int64_t> bytes(held.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto device = static_cast<size_t>(device_of[stage]);
    bytes[device] +=
        StageMemoryBytes(model, work, stages[stage], held[device], chunks);
  }
  return bytes;
}

constexpr char kCompile[] = "compile";

Workload Sized(Workload workload, const GptCaseSizes& sizes) {
  if (sizes.batch_size > 0) workload.batch_size = sizes.batch_size;
  if (sizes.tokens > 0) return WithTokens(workload, sizes.tokens);
  return workload;
}

// Whether DistributedDataParallel alone takes the layout.
bool IsInOnePiece(const Layout& layout) {
  return layout.devices_of_replica() == 1;
}

// Weight gradients by themselves are computed behind the compiler's back.
bool CanBeCompiled(const Setting& setting) {
  return setting.schedule != "zero_bubble" &&
         (setting.recipe.empty() || setting.recipe == "ddp");
}

std::vector<Setting> CompiledStages(const std::vector<Setting>& settings) {
  std::vector<Setting> compiled;
  for (const Setting& each : settings) {
    if (CanBeCompiled(each)) compiled.push_back(each);
  }
  return WithRecipe(std::move(compiled), "compiled");
}

Peer PipelinePeer(const Case& bench, const std::string& name) {
  if (name != kCompile) return {"pipelining", Program::kPyTorch, bench.peers};
  return {"pipelining, compiled", Program::kPyTorch,
          CompiledStages(bench.peers)};
}

Peer OnePiecePeer(const Case& bench, const std::string& name) {
  const bool alone = bench.layout.replicas == 1;
  return {name, alone ? Program::kOneProcess : Program::kPyTorch,
          WithRecipe({Setting()}, name)};
}

using nlohmann::json;

constexpr int kUsualRounds = 7;

absl::StatusOr<std::vector<Case>> GptCasesFromFlags(BenchFlags flags) {
  if (flags.cases.empty()) flags.cases = {"gpt_baby"};
  return CasesFromFlags(GptCases({flags.batch_size, flags.tokens}), flags);
}

// The memory of tandem, and of a peer, which has a process for each device.
double MemoryByFormula(const CaseResult& result, const SideResult& side) {
  const Layout& ours = result.bench.layout;
  return FormulaMib(result.bench.workload,
                    &side == &result.ours ? ours : ours.OverRanks(),
                    side.setting);
}

}  // namespace

double FormulaMib(const Workload& workload, const Layout& layout,
                  const Setting& setting) {
  const std::optional<GptOptions> model = GptSize(workload.model);
  if (!model) return 0;
  const absl::StatusOr<Schedule> schedule = MakeSchedule(
      OurName(setting),
      {layout.devices_of_replica(), setting.chunks, setting.microbatches});
  if (!schedule.ok()) return 0;
  const std::vector<int64_t> bytes = DeviceMemoryBytes(
      *model, LargestDeviceWork(workload, layout, setting), *schedule,
      ValidateSchedule(*schedule)->peak_activations, setting.chunks);
  int64_t most = 0;
  for (int rank = 0; rank < layout.pipe; ++rank) {
    int64_t all = 0;
    for (int i = 0; i < layout.devices; ++i) {
      all += bytes[static_cast<size_t>(rank * layout.devices + i)];
    }
    most = std::max(most, all);
  }
  return static_cast<double>(most) / (1 << 20);
}

std::vector<Case> GptCases(const GptCaseSizes& sizes) {
  std::vector<Case> cases;
  for (const char* model : {"gpt_tiny", "gpt_baby", "gpt2"}) {
    for (Case& each : CasesInLayouts(Sized(*WorkloadNamed(model), sizes))) {
      if (IsInOnePiece(each.layout)) {
        each.ours = WithRecipe({Setting()}, "static_graph");
      }
      cases.push_back(std::move(each));
    }
  }
  return cases;
}

std::vector<Peer> GptPeers(const Case& bench,
                           const std::vector<std::string>& names, bool wanted) {
  std::vector<Peer> peers;
  for (const std::string& name : names) {
    peers.push_back(IsInOnePiece(bench.layout) ? OnePiecePeer(bench, name)
                                               : PipelinePeer(bench, name));
    peers.back().may_fail = !wanted && name == kCompile;
  }
  return peers;
}

std::vector<Table> GptTables(const std::vector<CaseResult>& results) {
  CaseTables cases({{"ours", "tokens/s", 0},
                    {"peer", "tokens/s", 0},
                    {"ours", "GFLOPS", 0},
                    {"peer", "GFLOPS", 0},
                    {"ours", "MiB", 0},
                    {"peer", "MiB", 0},
                    {"ours_formula", "MiB", 0},
                    {"peer_formula", "MiB", 0},
                    {"ours_setting"},
                    {"peer_setting"}});
  for (const CaseResult& result : results) {
    const SideResult& ours = result.ours;
    const Workload& workload = result.bench.workload;
    const auto tokens = static_cast<double>(workload.input_shape.front());
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      const double our_rate = SamplesPerSecond(result, ours);
      const double peer_rate = SamplesPerSecond(result, peer);
      return {our_rate * tokens,
              peer_rate * tokens,
              our_rate * workload.gflop,
              peer_rate * workload.gflop,
              ours.peak_mib,
              peer.peak_mib,
              MemoryByFormula(result, ours),
              MemoryByFormula(result, peer),
              ToString(ours.setting),
              ToString(peer.setting)};
    });
  }
  return cases.tables();
}

absl::StatusOr<SuiteReport> RunGptSuite(const BenchFlags& flags,
                                        const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", flags.peers, {"eager", "compile"}));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          GptCasesFromFlags(flags));
  TANDEM_ASSIGN_OR_RETURN(const ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  const bool wanted = !flags.peers.empty();  // by name
  const std::vector<std::string> peers =
      wanted ? flags.peers : std::vector<std::string>{"eager", "compile"};
  std::vector<CaseResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(
        results.emplace_back(),
        RunCase(bench, GptPeers(bench, peers, wanted),
                KnownLosses(bench.workload.dtype), options));
    // Shown as soon as it is known: a run of all takes a while.
    if (cases.size() > 1) ShowTables(GptTables({results.back()}));
  }
  return SuiteReport{GptTables(results)};
}

}  // namespace tandem
