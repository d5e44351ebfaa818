// Strategies of a parameter server's ranks: its workers and its servers.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_STRATEGIES_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_STRATEGIES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "parallel/parameter_server/served_layout.h"
#include "parallel/parameter_server/server.h"
#include "parallel/parameter_server/worker_client.h"
#include "parallel/step/step_score.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

// See MakeParameterServer.
class ServerStrategy : public Strategy {
 public:
  struct Setup {
    ServedLayout layout;
    std::vector<Slice> slices;              // of the trained tensors, by server
    Slice kept;                             // of what workers keep
    int server = 0;                         // this one
    std::unique_ptr<Communicator> servers;  // all of them
  };

  // `server` answers workers by `setup`.
  ServerStrategy(std::unique_ptr<Setup> setup,
                 std::unique_ptr<ParameterServer> server);

  std::string name() const override { return "parameter_server"; }
  // The learning rate comes with each push.
  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  // Nothing is known before the workers' updates; these give the score of none.
  absl::StatusOr<Score> ComputeGradients(const Batch& /*batch*/) override {
    return Score();
  }
  absl::Status Update(double learning_rate) override {
    return TrainStep(Batch(), learning_rate).status();
  }
  absl::Status SkipUpdate() override { return Update(0); }
  // Losses of all workers, in the last step.
  std::map<std::string, double> AuxiliaryLosses() const override {
    return score_.auxiliary_losses;
  }
  std::map<std::string, double> NamedSums() const override {
    return score_.sums;
  }
  void ResumeAt(int64_t steps) override;
  absl::Status Synchronise() override;
  bool takes_inputs() const override { return false; }
  bool takes_targets() const override { return false; }
  absl::StatusOr<Score> Evaluate(const Batch& /*batch*/) override {
    return Score();
  }
  // It has evaluated nothing.
  absl::StatusOr<Score> Sum(const Score& /*score*/) override {
    return server_->AwaitSum();
  }
  NamedTensors Parameters() const override { return {}; }
  NamedTensors Buffers() const override { return {}; }
  std::map<std::string, int64_t> OptimizerGroups() const override {
    return setup_->layout.Groups();
  }
  NamedTensors OptimizerState() const override { return {}; }
  absl::Status StreamState(const StateParts& parts, TensorSink& sink) override;
  absl::StatusOr<StatePart> PartToSave() override;
  Communicator* SavingGroup(Communicator* world) const override {
    return setup_->servers.get();
  }
  std::vector<std::pair<std::string, double>> Measurements() const override {
    return server_->Measurements();
  }
  absl::Status LoadModelState(const StoredTensors& state) override;
  absl::Status LoadOptimizerState(const StoredTensors& state) override {
    return server_->served().LoadOptimizerState(state);
  }
  absl::Status CheckModelState(const StoredTensors& state) const override;
  absl::Status CheckOptimizerState(const StoredTensors& state) const override {
    return server_->served().CheckOptimizerState(state);
  }

 private:
  const std::unique_ptr<const Setup> setup_;
  std::unique_ptr<ParameterServer> server_;
  StepScore score_;    // of the last step
  int64_t step_ = 0;   // done
  bool alike_ = true;  // are workers, at the moment?
};

// What a replica trains, and what it keeps to itself, in the layout's order:
// live tensors.
struct ReplicaTensors {
  ServedLayout layout;
  std::vector<at::Tensor> trained;
  std::vector<at::Tensor> kept;
  // Tensors that have the values of trained[i] as well, and i.
  std::vector<std::pair<at::Tensor, size_t>> copies;

  // After new values of those that are trained.
  absl::Status UpdateCopies() const;
};

// `group`: the optimizer's, by name; null: all have the first.
ReplicaTensors MakeReplicaTensors(
    const Strategy& replica,
    const std::function<int64_t(const std::string&)>& group);

// See MakeParameterServer. A step that is skipped is a push that says so.
class WorkerStrategy : public Strategy {
 public:
  // `replica` has `tensors`.
  WorkerStrategy(std::unique_ptr<Strategy> replica, ReplicaTensors tensors,
                 std::vector<Slice> slices);

  // After which it trains. `in_step`: all workers do each step together, so
  // that they can tell each other what their targets weigh in it.
  void Connect(WorkerClient::Setup setup, bool in_step);
  const std::vector<Slice>& slices() const { return slices_; }

  std::string name() const override { return "parameter_server"; }
  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  absl::StatusOr<Score> ComputeGradients(const Batch& batch) override;
  absl::Status Update(double learning_rate) override;
  absl::Status SkipUpdate() override;
  std::map<std::string, double> AuxiliaryLosses() const override {
    return replica_->AuxiliaryLosses();
  }
  std::map<std::string, double> NamedSums() const override {
    return replica_->NamedSums();
  }
  void ResumeAt(int64_t steps) override;
  absl::Status Synchronise() override;
  absl::StatusOr<Score> Evaluate(const Batch& batch) override {
    return replica_->Evaluate(batch);
  }
  absl::StatusOr<Score> Sum(const Score& score) override {
    return client_->Sum(score);
  }
  NamedTensors Parameters() const override { return replica_->Parameters(); }
  NamedTensors Buffers() const override { return replica_->Buffers(); }
  std::map<std::string, int64_t> OptimizerGroups() const override {
    return tensors_.layout.Groups();
  }
  NamedTensors OptimizerState() const override { return {}; }
  // Servers have it, and save.
  absl::Status StreamState(const StateParts& /*parts*/,
                           TensorSink& /*sink*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<StatePart> PartToSave() override { return StatePart(); }
  Communicator* SavingGroup(Communicator* world) const override {
    return nullptr;
  }
  absl::Status LoadModelState(const StoredTensors& state) override {
    return replica_->LoadModelState(state);
  }
  absl::Status LoadOptimizerState(const StoredTensors& /*state*/) override {
    return absl::OkStatus();
  }
  absl::Status CheckModelState(const StoredTensors& state) const override {
    return replica_->CheckModelState(state);
  }
  absl::Status CheckOptimizerState(
      const StoredTensors& /*state*/) const override {
    return absl::OkStatus();
  }

 private:
  absl::Status PushAndPull(WorkerClient::StepPush push,
                           const std::vector<at::Tensor>& gradients);

  std::unique_ptr<Strategy> replica_;
  ReplicaTensors tensors_;
  std::vector<Slice> slices_;
  std::unique_ptr<WorkerClient> client_;
  Score score_;        // of the step under way
  int64_t step_ = 0;   // done
  bool alike_ = true;  // are workers, at the moment?
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_STRATEGIES_H_
