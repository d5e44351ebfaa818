// Worker of a parameter server, as a strategy.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_STRATEGY_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_STRATEGY_H_

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
#include "core/base/named_tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/model/batch.h"
#include "parallel/parameter_server/served_layout.h"
#include "parallel/parameter_server/worker_client.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

// What a replica trains, and what it keeps to itself, in the layout's order:
// live tensors.
struct ReplicaTensors {
  ServedLayout layout;
  std::vector<at::Tensor> trained;
  std::vector<at::Tensor> kept;
  // Tensors that have the values of trained[i] as well, and i.
  std::vector<std::pair<at::Tensor, size_t>> copies;

  // After new values of those that are trained.
  void UpdateCopies() const;
};

// `group`: the optimizer's, by name; null: all have the first.
ReplicaTensors TensorsOf(
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
  absl::Status UpdateCopies() const;
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

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_STRATEGY_H_
