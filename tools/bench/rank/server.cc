#include "tools/bench/pipeline_server.h"

#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
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
#include "core/instrument/trace.h"
#include "core/program/process.h"
#include "parallel/pipeline/microbatches.h"
#include "tools/bench/bench_group.h"
#include "tools/bench/bench_inputs.h"
#include "tools/bench/cores.h"
#include "tools/bench/overlap_times.h"
#include "tools/bench/pipeline_case.h"
#include "tools/bench/pipeline_trainer.h"
#include "tools/bench/usage.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr char kBackend[] = "shm";
const PipelineSetting kWhole = {"1f1b", 1, 1, "uniform"};

absl::StatusOr<BenchCase> CaseOf(const std::string& model) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<PipelineCase> cases,
                          PipelineCasesNamed({model}));
  return cases.front().bench;
}

class PipelineServer {
 public:
  static absl::StatusOr<std::unique_ptr<PipelineServer>> Create(
      const PipelineServerOptions& options) {
    auto server = absl::WrapUnique(new PipelineServer);
    TANDEM_RETURN_IF_ERROR(server->Read(options));
    const int cores = options.ranks * options.devices;
    for (int i = 0; i < options.devices; ++i) {
      server->cores_.push_back(
          CoreOf(options.rank * options.devices + i, cores));
    }
    server->place_ = {server->cores_, options.pipe, nullptr};
    if (options.ranks > 1) {
      TANDEM_ASSIGN_OR_RETURN(server->world_,
                              ConnectRanks(options.rendezvous, options.rank,
                                           options.ranks, kBackend));
      server->place_.world = server->world_.get();
    }
    return server;
  }

  absl::StatusOr<json> Do(const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    words >> verb;
    if (verb == "use") return Use(command.substr(verb.size()));
    int64_t count = 1;
    words >> count;
    if (verb == "alone") return Alone(count);
    if (verb == "memory") return json{{"peak_mib", PeakRssMib()}};
    if (trainer_ == nullptr) {
      return absl::FailedPreconditionError("no setting is in use");
    }
    if (verb == "losses") return Losses(count);
    if (verb == "steps") return Steps(count);
    if (verb == "overlap") return Overlap(count);
    if (verb == "stages") return Stages(count);
    return absl::InvalidArgumentError(
        absl::StrCat("unknown command '", command, "'"));
  }

 private:
  absl::Status Read(const PipelineServerOptions& options) {
    TANDEM_ASSIGN_OR_RETURN(inputs_.bench, CaseOf(options.model));
    if (options.learning_rate > 0) {
      inputs_.bench.learning_rate = options.learning_rate;
    }
    TANDEM_ASSIGN_OR_RETURN(BenchInputs read,
                            ReadBenchInputs(options.inputs, 0));
    inputs_.state = std::move(read.state);
    inputs_.batches = std::move(read.batches);
    own_ = inputs_;
    const int replicas = options.ranks / options.pipe;
    for (Batch& batch : own_.batches) {
      TANDEM_ASSIGN_OR_RETURN(
          const std::vector<Batch> parts,
          SplitBatch(batch, EvenSizes(batch.size, replicas)));
      batch = parts[static_cast<size_t>(options.rank / options.pipe)];
    }
    return absl::OkStatus();
  }

  absl::StatusOr<json> Use(const std::string& words) {
    TANDEM_ASSIGN_OR_RETURN(setting_, ParsePipelineSetting(words));
    trainer_.reset();
    TANDEM_ASSIGN_OR_RETURN(trainer_,
                            PipelineTrainer::Create(own_, setting_, place_));
    return json{{"cuts", trainer_->cuts()}};
  }

  absl::StatusOr<json> Losses(int64_t count) {
    json losses = json::array();
    for (int64_t i = 0; i < count; ++i) {
      TANDEM_ASSIGN_OR_RETURN(const Score score, trainer_->Step());
      const bool tells = world_ == nullptr || world_->rank() == 0;
      losses.push_back(tells ? score.loss() : 0);
    }
    return json{{"losses", losses}};
  }

  absl::StatusOr<json> Overlap(int64_t count) {
    json steps = json::array();
    for (int64_t i = 0; i < count; ++i) {
      Trace::OfProcess().Start();
      const absl::Status done = trainer_->Step().status();
      const std::vector<TraceEvent> events = Trace::OfProcess().Stop();
      TANDEM_RETURN_IF_ERROR(done);
      steps.push_back(SpansOf(events));
    }
    return json{{"steps", steps}};
  }

  static absl::Status Run(PipelineTrainer& trainer, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      TANDEM_RETURN_IF_ERROR(trainer.Step().status());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<json> Steps(int64_t count) {
    TANDEM_RETURN_IF_ERROR(Run(*trainer_, 1));
    const Usage before = Usage::Now();
    TANDEM_RETURN_IF_ERROR(Run(*trainer_, count));
    const Usage used = Usage::Now() - before;
    return json{{"ms", used.wall_ms / count},
                {"cpu_ms", used.cpu_ms / count},
                {"faults", used.faults / count}};
  }

  absl::Status MakeWhole() {
    if (!whole_.empty()) return absl::OkStatus();
    for (int core : cores_) {
      TANDEM_ASSIGN_OR_RETURN(
          whole_.emplace_back(),
          PipelineTrainer::Create(inputs_, kWhole, {{core}, 1, nullptr}));
      TANDEM_RETURN_IF_ERROR(Run(*whole_.back(), 1));
    }
    return absl::OkStatus();
  }

  // Whoever is through first keeps its core busy until the others are.
  absl::StatusOr<json> Alone(int64_t count) {
    TANDEM_RETURN_IF_ERROR(MakeWhole());
    std::atomic<size_t> done{0};
    std::vector<double> ms(cores_.size());
    TANDEM_RETURN_IF_ERROR(OnEachCore(cores_, [&](size_t i) {
      TANDEM_RETURN_IF_ERROR(Run(*whole_[i], 1));
      const Usage before = Usage::Now();
      const absl::Status status = Run(*whole_[i], count);
      ms[i] = (Usage::Now() - before).wall_ms / count;
      for (++done; status.ok() && done < cores_.size();) {
        TANDEM_RETURN_IF_ERROR(Run(*whole_[i], 1));
      }
      return status;
    }));
    double sum = 0;
    for (double each : ms) sum += each;
    return json{{"ms", sum / static_cast<double>(ms.size())}};
  }

  absl::StatusOr<json> Stages(int64_t count) {
    std::vector<std::vector<StageCost>> times(cores_.size());
    TANDEM_RETURN_IF_ERROR(OnEachCore(cores_, [&](size_t i) {
      TANDEM_ASSIGN_OR_RETURN(
          times[i], StageTimes(inputs_, setting_, trainer_->cuts(), count));
      return absl::OkStatus();
    }));
    json answer = {{"forward", json::array()},
                   {"backward_input", json::array()},
                   {"backward_weight", json::array()}};
    const auto cores = static_cast<double>(cores_.size());
    for (size_t stage = 0; stage < times.front().size(); ++stage) {
      StageCost mean = {0, 0, 0};
      for (const auto& core : times) {
        mean.forward += core[stage].forward / cores;
        mean.backward_input += core[stage].backward_input / cores;
        mean.backward_weight += core[stage].backward_weight / cores;
      }
      answer["forward"].push_back(mean.forward);
      answer["backward_input"].push_back(mean.backward_input);
      answer["backward_weight"].push_back(mean.backward_weight);
    }
    TANDEM_ASSIGN_OR_RETURN(
        answer["optimizer"],
        OptimizerMs(inputs_, setting_, trainer_->cuts(), cores_));
    return answer;
  }

  PipelineInputs inputs_;                // whole batches
  PipelineInputs own_;                   // this rank's replica's part of them
  std::unique_ptr<Communicator> world_;  // null: one rank
  std::vector<int> cores_;               // this rank's
  PipelinePlace place_;
  PipelineSetting setting_;
  std::unique_ptr<PipelineTrainer> trainer_;
  std::vector<std::unique_ptr<PipelineTrainer>> whole_;  // by core
};

absl::Status Answer(const PipelineServerOptions& options) {
  std::ifstream commands(options.commands);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<PipelineServer> server,
                          PipelineServer::Create(options));
  for (std::string line; std::getline(commands, line);) {
    TANDEM_ASSIGN_OR_RETURN(const json answer, server->Do(line));
    std::cout << answer.dump() << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ServePipeline(const PipelineServerOptions& options) {
  // All that a rank of one device does, it does on that core.
  if (options.ranks > 1 && options.devices == 1) {
    TANDEM_RETURN_IF_ERROR(BindToCore(CoreOf(options.rank, options.ranks)));
  }
  ConfigureProcess(options.threads);
  const absl::Status status = CatchTorch([&] { return Answer(options); });
  if (!status.ok()) {
    std::cout << json{{"error", std::string(status.message())}}.dump()
              << std::endl;
  }
  return status;
}

absl::Status WriteInputsOf(const PipelineServerOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const BenchCase bench, CaseOf(options.model));
  return CatchTorch([&] { return WriteBenchInputs(bench, 1, options.inputs); });
}

}  // namespace tandem
