#include "tools/bench/rank/server.h"

#include <atomic>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/program/process.h"
#include "tools/bench/case/case.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/op_profile.h"
#include "tools/bench/measure/overlap_times.h"
#include "tools/bench/measure/step_floor.h"
#include "tools/bench/rank/group.h"
#include "tools/bench/rank/inputs.h"
#include "tools/bench/rank/trainer.h"
#include "tools/bench/stages/calibration.h"

namespace tandem {
namespace {

// A model in one piece on each core of a rank, which talks to nobody: what a
// step's time is compared with. Not thread-safe.
class AloneModels {
 public:
  // `inputs` must outlive it. Of the setting counts the recipe.
  static absl::StatusOr<std::unique_ptr<AloneModels>> Create(
      const Inputs& inputs, const Setting& setting, std::vector<int> cores);

  // Milliseconds of a step, a mean over the cores, which all compute for as
  // long as any of them does.
  absl::StatusOr<double> StepMs(int64_t count);

  // The floor of the first core's step, while the others train: step_floor.h.
  absl::StatusOr<nlohmann::json> Floor();

  // The trainer of the first core, on the calling thread.
  Trainer& first() { return *trainers_.front(); }

 private:
  explicit AloneModels(std::vector<int> cores) : cores_(std::move(cores)) {}

  std::vector<int> cores_;
  std::vector<std::unique_ptr<Trainer>> trainers_;  // by core
};

absl::StatusOr<std::unique_ptr<AloneModels>> AloneModels::Create(
    const Inputs& inputs, const Setting& setting, std::vector<int> cores) {
  auto models = absl::WrapUnique(new AloneModels(std::move(cores)));
  Setting whole;
  whole.recipe = setting.recipe;
  for (int core : models->cores_) {
    TANDEM_ASSIGN_OR_RETURN(
        models->trainers_.emplace_back(),
        Trainer::Create(inputs, whole, {{core}, 1, nullptr}));
    TANDEM_RETURN_IF_ERROR(models->trainers_.back()->Steps(2));
  }
  return models;
}

absl::StatusOr<double> AloneModels::StepMs(int64_t count) {
  std::atomic<size_t> done{0};
  std::vector<double> ms(cores_.size());
  TANDEM_RETURN_IF_ERROR(OnEachCore(cores_, [&](size_t i) {
    TANDEM_RETURN_IF_ERROR(trainers_[i]->Step().status());
    const Usage before = Usage::Now();
    const absl::Status status = trainers_[i]->Steps(count);
    ms[i] = (Usage::Now() - before).wall_ms / static_cast<double>(count);
    // Whoever is through first keeps its core busy until the others are.
    for (++done; status.ok() && done < cores_.size();) {
      TANDEM_RETURN_IF_ERROR(trainers_[i]->Step().status());
    }
    return status;
  }));
  double sum = 0;
  for (double each : ms) sum += each;
  return sum / static_cast<double>(ms.size());
}

using nlohmann::json;

absl::StatusOr<json> AloneModels::Floor() {
  std::atomic<bool> recorded{false};
  std::atomic<bool> done{false};
  absl::StatusOr<json> floor = json();
  const absl::Status status = OnEachCore(cores_, [&](size_t i) -> absl::Status {
    if (i == 0) {
      // Whatever comes, other cores wait no longer.
      const absl::Cleanup ends = [&] { recorded = done = true; };
      // A thread tries the kernels among which it chooses in its first step.
      TANDEM_RETURN_IF_ERROR(first().Steps(1));
      floor =
          StepFloor([&] { return first().Steps(1); }, [&] { recorded = true; });
      return floor.status();
    }
    while (!recorded) std::this_thread::yield();
    while (!done) TANDEM_RETURN_IF_ERROR(trainers_[i]->Steps(1));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return floor;
}

// What each of the cores reads and writes a second while all do, a mean.
absl::StatusOr<double> CoreBandwidth(const std::vector<int>& cores) {
  std::vector<double> rates(cores.size());
  TANDEM_RETURN_IF_ERROR(OnEachCore(cores, [&](size_t i) {
    rates[i] = MemoryBandwidth();
    return absl::OkStatus();
  }));
  return absl::c_accumulate(rates, 0.0) / static_cast<double>(rates.size());
}

absl::StatusOr<Workload> RankWorkload(const RankOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(Workload workload, WorkloadNamed(options.model));
  if (options.batch_size > 0) workload.batch_size = options.batch_size;
  if (!options.optimizer.empty()) workload.optimizer = options.optimizer;
  if (!options.input_shape.empty()) workload.input_shape = options.input_shape;
  workload.dtype = options.dtype;
  if (options.learning_rate > 0) workload.learning_rate = options.learning_rate;
  return workload;
}

class RankServer {
 public:
  static absl::StatusOr<std::unique_ptr<RankServer>> Create(
      const RankOptions& options) {
    auto server = absl::WrapUnique(new RankServer(options));
    TANDEM_ASSIGN_OR_RETURN(const Workload workload, RankWorkload(options));
    server->place_ = {
        CoreNumbers(options.rank * options.devices, options.devices,
                    options.ranks * options.devices),
        options.pipe, nullptr, c10::Device(c10::kCPU)};
    TANDEM_RETURN_IF_ERROR(server->TakeDevice());
    TANDEM_ASSIGN_OR_RETURN(
        server->inputs_,
        ReadInputsFile(workload, options.inputs, options.rank / options.pipe,
                       options.ranks / options.pipe));
    PlaceBatches(server->place_.device, server->inputs_);
    if (options.ranks > 1) {
      TANDEM_ASSIGN_OR_RETURN(server->world_,
                              ConnectRanks(options.rendezvous, options.rank,
                                           options.ranks, options.backend));
      server->place_.world = server->world_.get();
    }
    return server;
  }

  absl::StatusOr<json> Do(const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    words >> verb;
    if (verb == "use") return Use(command.substr(verb.size()));
    if (verb == "memory") return json{{"peak_mib", PeakMib(place_.device)}};
    const auto known = Commands().find(verb);
    if (known == Commands().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown command '", command, "'"));
    }
    if (trainer_ == nullptr) {
      return absl::FailedPreconditionError("no setting is in use");
    }
    int64_t count = 1;
    words >> count;
    return (this->*known->second)(count);
  }

 private:
  using Command = absl::StatusOr<json> (RankServer::*)(int64_t count);

  explicit RankServer(const RankOptions& options) : options_(options) {}

  static const std::map<std::string, Command>& Commands() {
    static const auto* const commands = new std::map<std::string, Command>{
        {"losses", &RankServer::Losses},
        {"steps", &RankServer::Steps},
        {"alone", &RankServer::StepsAlone},
        {"communication", &RankServer::Communication},
        {"overlap", &RankServer::Overlap},
        {"stages", &RankServer::Stages},
        {"profile", &RankServer::Profile},
        {"floor", &RankServer::Floor},
        {"gemm", &RankServer::Gemm},
        {"all_reduce", &RankServer::AllReduce}};
    return *commands;
  }

  absl::Status TakeDevice() {
    if (options_.device == "cpu") return absl::OkStatus();
    if (options_.ranks > 1 || options_.devices > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device=", options_.device,
                       " is for one rank with one device, not for ",
                       options_.ranks, " ranks with ", options_.devices));
    }
    TANDEM_ASSIGN_OR_RETURN(
        place_.device, PrepareDevice(options_.device, options_.allow_tf32));
    return absl::OkStatus();
  }

  absl::StatusOr<json> Use(const std::string& words) {
    TANDEM_ASSIGN_OR_RETURN(Setting setting, ParseSetting(words));
    if (setting.recipe != setting_.recipe) alone_.reset();
    setting_ = std::move(setting);
    stages_.reset();
    trainer_.reset();
    TANDEM_RETURN_IF_ERROR(ChooseKernels(
        !setting_.reproducible, options_.rendezvous, world_.get(), &kernels_));
    TANDEM_ASSIGN_OR_RETURN(trainer_,
                            Trainer::Create(inputs_, setting_, place_));
    return json{{"cuts", trainer_->cuts()}};
  }

  absl::StatusOr<json> Losses(int64_t count) {
    json losses = json::array();
    for (int64_t i = 0; i < count; ++i) {
      TANDEM_ASSIGN_OR_RETURN(const Score score, trainer_->Step());
      losses.push_back(options_.rank == 0 ? score.loss() : 0);
    }
    return json{{"losses", losses},
                {"kernels",
                 place_.device.is_cpu()
                     ? DescribeKernels(inputs_.workload.dtype,
                                       KernelCache(options_.rendezvous))
                     : DescribeDevice(options_.device, options_.allow_tf32)}};
  }

  absl::StatusOr<json> Steps(int64_t count) {
    TANDEM_RETURN_IF_ERROR(trainer_->Steps(1));
    WaitFor(place_.device);
    const Usage before = Usage::Now();
    TANDEM_RETURN_IF_ERROR(trainer_->Steps(count));
    WaitFor(place_.device);
    const Usage used = Usage::Now() - before;
    return json{{"ms", used.wall_ms / count},
                {"cpu_ms", used.cpu_ms / count},
                {"faults", used.faults / count}};
  }

  absl::StatusOr<AloneModels*> Alone() {
    if (alone_ == nullptr) {
      TANDEM_ASSIGN_OR_RETURN(
          alone_, AloneModels::Create(inputs_, setting_, place_.cores));
    }
    return alone_.get();
  }

  absl::StatusOr<json> StepsAlone(int64_t count) {
    TANDEM_ASSIGN_OR_RETURN(AloneModels* const models, Alone());
    TANDEM_ASSIGN_OR_RETURN(const double ms, models->StepMs(count));
    return json{{"ms", ms}};
  }

  absl::StatusOr<json> Communication(int64_t count) {
    TANDEM_RETURN_IF_ERROR(trainer_->Steps(count));
    const CommunicationTimes times = trainer_->MeanCommunication();
    return json{{"comm_ms", times.comm_ms}, {"exposed_ms", times.exposed_ms}};
  }

  absl::StatusOr<json> Overlap(int64_t count) {
    json steps = json::array();
    for (int64_t i = 0; i < count; ++i) {
      TANDEM_ASSIGN_OR_RETURN(const std::vector<TraceEvent> events,
                              trainer_->TraceStep());
      steps.push_back(TraceSpans(events));
    }
    return json{{"steps", steps}};
  }

  absl::Status Calibrate() {
    TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs,
                            MakeSpecs(inputs_.workload));
    TANDEM_ASSIGN_OR_RETURN(const Schedule schedule,
                            PlacedSchedule(setting_, place_));
    TANDEM_ASSIGN_OR_RETURN(
        stages_,
        StageCalibration::OnCores(specs, schedule, trainer_->cuts(),
                                  inputs_.batches.front(), place_.cores));
    return absl::OkStatus();
  }

  absl::StatusOr<json> Stages(int64_t count) {
    if (stages_ == nullptr) TANDEM_RETURN_IF_ERROR(Calibrate());
    TANDEM_ASSIGN_OR_RETURN(const CalibratedTimes times,
                            stages_->Measure(static_cast<int>(count)));
    return CalibrationJson(times);
  }

  absl::StatusOr<json> Profile(int64_t count) {
    TANDEM_ASSIGN_OR_RETURN(AloneModels* const models, Alone());
    OpProfile profile;
    TANDEM_RETURN_IF_ERROR(models->first().Steps(count));
    return profile.Take(count);
  }

  absl::StatusOr<json> Floor(int64_t) {
    TANDEM_ASSIGN_OR_RETURN(AloneModels* const models, Alone());
    TANDEM_ASSIGN_OR_RETURN(json floor, models->Floor());
    TANDEM_ASSIGN_OR_RETURN(const double rate, CoreBandwidth(place_.cores));
    floor["gb_per_s"] = rate / 1e9;
    return floor;
  }

  absl::StatusOr<json> Gemm(int64_t) { return GemmLimits(); }

  absl::StatusOr<json> AllReduce(int64_t) {
    if (world_ == nullptr) {
      return absl::FailedPreconditionError("one rank reduces nothing");
    }
    return AllReduceLimits(*world_, trainer_->CountParameters(),
                           options_.rendezvous + ".gloo");
  }

  const RankOptions options_;
  Inputs inputs_;                        // this rank's replica's part
  std::unique_ptr<Communicator> world_;  // null: one rank
  MeasuredKernels kernels_;
  RankPlace place_;
  Setting setting_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<AloneModels> alone_;        // of its recipe
  std::unique_ptr<StageCalibration> stages_;  // of the setting in use
};

absl::Status Answer(const RankOptions& options) {
  std::ifstream commands(options.commands);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<RankServer> server,
                          RankServer::Create(options));
  for (std::string line; std::getline(commands, line);) {
    TANDEM_ASSIGN_OR_RETURN(const json answer, server->Do(line));
    std::cout << answer.dump() << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ServeRank(const RankOptions& options) {
  // All that a rank of one device does, it does on that core.
  if (options.ranks > 1 && options.devices == 1) {
    TANDEM_RETURN_IF_ERROR(BindToCore(CoreNumber(options.rank, options.ranks)));
  }
  ConfigureProcess(options.threads);
  const absl::Status status = CatchTorch([&] { return Answer(options); });
  if (!status.ok()) {
    std::cout << json{{"error", std::string(status.message())}}.dump()
              << std::endl;
  }
  return status;
}

absl::Status WriteRankInputs(const RankOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const Workload workload, RankWorkload(options));
  return CatchTorch([&] { return WriteInputsFile(workload, options.inputs); });
}

}  // namespace tandem
