// Server of a parameter server, as a strategy.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_SERVER_STRATEGY_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_SERVER_STRATEGY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "parallel/parameter_server/served_layout.h"
#include "parallel/parameter_server/server.h"
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

  explicit ServerStrategy(Setup setup);

  const Setup& setup() const { return setup_; }
  // Workers are answered from now on.
  void Serve(std::unique_ptr<ParameterServer> server) {
    server_ = std::move(server);
  }

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
    return setup_.layout.Groups();
  }
  NamedTensors OptimizerState() const override { return {}; }
  absl::Status StreamState(const StateParts& parts, TensorSink& sink) override;
  absl::StatusOr<StatePart> PartToSave() override;
  Communicator* SavingGroup(Communicator* world) const override {
    return setup_.servers.get();
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
  // Under PieceName: this server's part of them.
  absl::StatusOr<NamedTensors> Pieces(const StateParts& parts) const;
  NamedTensors ModelPieces(const StateParts& parts) const;
  NamedTensors KeptPieces(const StateParts& parts) const;

  Setup setup_;
  std::unique_ptr<ParameterServer> server_;
  StepScore score_;    // of the last step
  int64_t step_ = 0;   // done
  bool alike_ = true;  // are workers, at the moment?
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_SERVER_STRATEGY_H_
