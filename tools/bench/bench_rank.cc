#include "tools/bench/bench_rank.h"

#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/program/process.h"
#include "models/classification_loss.h"
#include "parallel/strategy/replicated.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/bench_group.h"
#include "tools/bench/bench_inputs.h"
#include "tools/bench/cores.h"
#include "tools/bench/op_profile.h"
#include "tools/bench/roofline.h"
#include "tools/bench/usage.h"

namespace tandem {
namespace {

using nlohmann::json;

OptimizerOptions OptimizerOf(const BenchCase& bench) {
  if (bench.optimizer == "adamw") return AdamWOptions();
  SgdOptions sgd;
  sgd.momentum = 0.9;
  return sgd;
}

absl::StatusOr<std::unique_ptr<Replicated>> MakeTrainer(
    const BenchCase& bench, const NamedTensors& state, bool find_unused,
    Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(LayerList layers, MakeCaseLayers(bench));
  ReplicatedOptions options;
  options.optimizer = OptimizerOf(bench);
  options.ddp.find_unused_parameters = find_unused;
  options.ddp.static_graph = !find_unused;  // as the peers
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Replicated> trainer,
      Replicated::Create(std::move(layers), CrossEntropy, options, group));
  TANDEM_RETURN_IF_ERROR(trainer->LoadModelState(state));
  return trainer;
}

class BenchRank {
 public:
  static absl::StatusOr<std::unique_ptr<BenchRank>> Create(
      const BenchRankOptions& options) {
    auto rank = absl::WrapUnique(new BenchRank(options));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<BenchCase> cases,
                            CasesNamed({options.model}));
    rank->case_ = cases.front();
    TANDEM_ASSIGN_OR_RETURN(rank->inputs_,
                            ReadBenchInputs(options.inputs, options.rank));
    TANDEM_ASSIGN_OR_RETURN(rank->world_,
                            ConnectRanks(options.rendezvous, options.rank,
                                         options.ranks, options.backend));
    TANDEM_ASSIGN_OR_RETURN(rank->alone_,
                            ConnectRanks("", 0, 1, options.backend));
    TANDEM_ASSIGN_OR_RETURN(rank->trainer_,
                            MakeTrainer(rank->case_, rank->inputs_.state,
                                        options.find_unused, *rank->world_));
    return rank;
  }

  absl::StatusOr<json> Do(const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    int64_t count = 1;
    words >> verb >> count;
    if (verb == "losses") return Losses(count);
    if (verb == "steps") return Steps(*trainer_, count);
    if (verb == "overlap") return Overlap(count);
    if (verb == "memory") return json{{"peak_mib", PeakRssMib()}};
    if (verb == "gemm") return Gemm();
    if (verb == "all_reduce") return AllReduce();
    if (verb == "local" || verb == "profile") return Local(verb, count);
    return absl::InvalidArgumentError(
        absl::StrCat("unknown command '", command, "'"));
  }

 private:
  explicit BenchRank(const BenchRankOptions& options) : options_(options) {}

  absl::StatusOr<Score> Step(Strategy& trainer) {
    const Batch& batch = inputs_.batches[step_++ % inputs_.batches.size()];
    return trainer.TrainStep(batch, case_.learning_rate);
  }

  absl::Status RunSteps(Strategy& trainer, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      TANDEM_RETURN_IF_ERROR(Step(trainer).status());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<json> Losses(int64_t count) {
    json losses = json::array();
    for (int64_t i = 0; i < count; ++i) {
      TANDEM_ASSIGN_OR_RETURN(const Score score, Step(*trainer_));
      losses.push_back(score.loss());
    }
    return json{{"losses", losses}};
  }

  absl::StatusOr<json> Steps(Strategy& trainer, int64_t count) {
    TANDEM_RETURN_IF_ERROR(RunSteps(trainer, 1));
    const Usage before = Usage::Now();
    TANDEM_RETURN_IF_ERROR(RunSteps(trainer, count));
    const Usage used = Usage::Now() - before;
    return json{{"ms", used.wall_ms / count},
                {"cpu_ms", used.cpu_ms / count},
                {"faults", used.faults / count}};
  }

  absl::StatusOr<json> Overlap(int64_t count) {
    TANDEM_RETURN_IF_ERROR(RunSteps(*trainer_, count));
    std::map<std::string, double> ns;
    for (const auto& [name, value] : trainer_->Measurements()) ns[name] = value;
    const double comm_ms = ns["avg_backward_comm_time"] / 1e6;
    const double both_ms = ns["avg_backward_compute_comm_overlap_time"] / 1e6;
    return json{{"comm_ms", comm_ms}, {"exposed_ms", comm_ms - both_ms}};
  }

  absl::StatusOr<json> Local(const std::string& verb, int64_t count) {
    if (local_ == nullptr) {
      TANDEM_ASSIGN_OR_RETURN(
          local_,
          MakeTrainer(case_, inputs_.state, options_.find_unused, *alone_));
      TANDEM_RETURN_IF_ERROR(RunSteps(*local_, 2));
    }
    if (verb == "local") return Steps(*local_, count);
    OpProfile profile;
    TANDEM_RETURN_IF_ERROR(RunSteps(*local_, count));
    return profile.Take(count);
  }

  static json Gemm() {
    const GemmRates rates = MeasureGemm();
    return {{"mkl_gflops", rates.mkl}, {"one_dnn_gflops", rates.one_dnn}};
  }

  absl::StatusOr<json> AllReduce() {
    int64_t numel = 0;
    for (const auto& each : trainer_->Parameters()) {
      numel += each.second.numel();
    }
    TANDEM_ASSIGN_OR_RETURN(const double ms, AllReduceMs(*world_, numel));
    TANDEM_ASSIGN_OR_RETURN(
        const std::unique_ptr<Communicator> group,
        ConnectRanks(options_.rendezvous + ".gloo", options_.rank,
                     options_.ranks, "gloo"));
    TANDEM_ASSIGN_OR_RETURN(const double gloo_ms, AllReduceMs(*group, numel));
    return json{{"ms", ms}, {"gloo_ms", gloo_ms}};
  }

  BenchRankOptions options_;
  BenchCase case_;
  BenchInputs inputs_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> alone_;
  std::unique_ptr<Replicated> trainer_;
  std::unique_ptr<Replicated> local_;
  size_t step_ = 0;
};

absl::Status Answer(const BenchRankOptions& options) {
  std::ifstream commands(options.commands);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<BenchRank> rank,
                          BenchRank::Create(options));
  for (std::string line; std::getline(commands, line);) {
    TANDEM_ASSIGN_OR_RETURN(const json answer, rank->Do(line));
    std::cout << answer.dump() << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunBenchRank(const BenchRankOptions& options) {
  TANDEM_RETURN_IF_ERROR(BindToCore(options.core));
  ConfigureProcess(options.threads);
  const absl::Status status = CatchTorch([&] { return Answer(options); });
  if (!status.ok()) {
    std::cout << json{{"error", std::string(status.message())}}.dump()
              << std::endl;
  }
  return status;
}

absl::Status WriteInputsOf(const BenchRankOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<BenchCase> cases,
                          CasesNamed({options.model}));
  return CatchTorch([&] {
    return WriteBenchInputs(cases.front(), options.ranks, options.inputs);
  });
}

}  // namespace tandem
