#include "parallel/parameter_server/strategies.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/state_part.h"
#include "parallel/ddp/model_state.h"
#include "parallel/parameter_server/served_layout.h"
#include "parallel/strategy/gathered_tensors.h"

namespace tandem {
namespace {

// Tensors of these shapes, without memory.
NamedTensors Shapes(const ServedLayout& layout) {
  NamedTensors shapes;
  const auto add = [&](const std::string& name, const TensorInfo& info) {
    shapes.emplace_back(
        name,
        at::empty(info.sizes, at::TensorOptions(c10::kMeta).dtype(info.dtype)));
  };
  for (const auto* list : {&layout.trained, &layout.kept}) {
    for (const ServedTensor& each : *list) add(each.info.name, each.info);
  }
  for (const auto& [alias, tensor] : layout.aliases) {
    add(alias, layout.trained[tensor].info);
  }
  return shapes;
}

ServedTensor Served(const std::string& name, const at::Tensor& tensor) {
  ServedTensor served;
  served.info = MakeTensorInfo(name, tensor);
  served.strides = tensor.strides().vec();
  return served;
}

// This server's part of what workers keep, under PieceName.
NamedTensors KeptPieces(const ServerStrategy::Setup& setup,
                        const ParameterServer& server,
                        const StateParts& parts) {
  NamedTensors pieces;
  const at::Tensor kept = server.kept();
  if (setup.server != 0 || !kept.defined()) return pieces;
  for (const Piece& piece : setup.kept.pieces) {
    const bool is_parameter = piece.tensor < setup.layout.frozen;
    if (is_parameter ? !parts.parameters : !parts.buffers) continue;
    const TensorInfo& info = setup.layout.kept[piece.tensor].info;
    pieces.emplace_back(PieceName(info.name, piece.begin),
                        PieceView(kept, piece, info.dtype));
  }
  return pieces;
}

// This server's part of the model's and the optimizer's state, under PieceName.
absl::StatusOr<NamedTensors> StatePieces(const ServerStrategy::Setup& setup,
                                         ParameterServer& server,
                                         const StateParts& parts) {
  NamedTensors model = KeptPieces(setup, server, parts);
  if (parts.parameters) {
    for (auto& each : server.served().Pieces()) {
      model.push_back(std::move(each));
    }
  }
  return CheckpointTensors(model, parts.optimizer
                                      ? server.served().OptimizerPieces()
                                      : NamedTensors());
}

}  // namespace

ServerStrategy::ServerStrategy(std::unique_ptr<Setup> setup,
                               std::unique_ptr<ParameterServer> server)
    : setup_(std::move(setup)), server_(std::move(server)) {}

absl::StatusOr<Score> ServerStrategy::TrainStep(const Batch& /*batch*/,
                                                double /*learning_rate*/) {
  alike_ = false;
  TANDEM_ASSIGN_OR_RETURN(score_, server_->AwaitStep(++step_));
  return score_.score;
}

void ServerStrategy::ResumeAt(int64_t steps) {
  step_ = steps;
  server_->ResumeAt(steps);
}

absl::Status ServerStrategy::Synchronise() {
  if (alike_) return absl::OkStatus();
  alike_ = true;
  return server_->AwaitMeeting();
}

absl::StatusOr<StatePart> ServerStrategy::PartToSave() {
  TANDEM_ASSIGN_OR_RETURN(const NamedTensors pieces,
                          StatePieces(*setup_, *server_, {true, true, true}));
  return StateOfSlices(pieces, setup_->layout);
}

absl::Status ServerStrategy::StreamState(const StateParts& parts,
                                         TensorSink& sink) {
  const auto stream = [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const NamedTensors pieces,
                            StatePieces(*setup_, *server_, parts));
    return StreamToRank0(StateOfSlices(pieces, setup_->layout),
                         *setup_->servers, sink);
  };
  const absl::Status status = stream();
  if (!status.ok()) setup_->servers->Abort(status);
  return status;
}

absl::Status ServerStrategy::CheckModelState(const StoredTensors& state) const {
  if (!state.kept().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model state lacks ", *state.kept().begin(),
                     ", and parameter servers have no values of their own"));
  }
  return tandem::CheckModelState(state, Shapes(setup_->layout));
}

absl::Status ServerStrategy::LoadModelState(const StoredTensors& state) {
  TANDEM_RETURN_IF_ERROR(CheckModelState(state));
  TANDEM_RETURN_IF_ERROR(server_->served().LoadValues(state));
  if (setup_->server != 0) return absl::OkStatus();
  std::vector<at::Tensor> kept;
  for (const ServedTensor& each : setup_->layout.kept) {
    for (const StoredTensor& stored : state) {
      if (stored.info.name != each.info.name) continue;
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, stored.read());
      kept.push_back(
          at::empty_strided(each.info.sizes, each.strides, values.options()));
      kept.back().copy_(values);
    }
  }
  const at::Tensor bytes = at::empty({setup_->kept.bytes}, at::kByte);
  Pack(kept, setup_->kept, bytes);
  server_->set_kept(bytes);
  return absl::OkStatus();
}

absl::Status ReplicaTensors::UpdateCopies() const {
  return CatchTorch([&] {
    at::NoGradGuard no_grad;
    for (const auto& [copy, place] : copies) {
      copy.detach().copy_(trained[place]);
    }
  });
}

ReplicaTensors MakeReplicaTensors(
    const Strategy& replica,
    const std::function<int64_t(const std::string&)>& group) {
  ReplicaTensors tensors;
  // A tied weight is trained once, be it one tensor or copies.
  const std::map<std::string, std::string> copies = replica.TiedCopies();
  std::map<std::string, size_t> place_of_name;
  std::map<const void*, size_t> place_of;
  for (const auto& [name, tensor] : replica.Parameters()) {
    ServedTensor served = Served(name, tensor);
    if (!tensor.requires_grad()) {
      tensors.layout.kept.push_back(std::move(served));
      tensors.kept.push_back(tensor);
      continue;
    }
    if (group) served.group = group(name);
    // The greatest place counts where a weight has several names.
    const auto add_alias = [&, name = name](size_t place) {
      tensors.layout.aliases.emplace_back(name, place);
      int64_t& greatest = tensors.layout.trained[place].group;
      greatest = std::max(greatest, served.group);
    };
    const auto copy = copies.find(name);
    if (copy != copies.end()) {
      const size_t place = place_of_name.at(copy->second);
      add_alias(place);
      tensors.copies.emplace_back(tensor, place);
      continue;
    }
    const auto [entry, is_new] =
        place_of.emplace(tensor.unsafeGetTensorImpl(), tensors.trained.size());
    place_of_name[name] = entry->second;
    if (!is_new) {
      add_alias(entry->second);
      continue;
    }
    tensors.layout.trained.push_back(std::move(served));
    tensors.trained.push_back(tensor);
  }
  tensors.layout.frozen = tensors.kept.size();
  for (const auto& [name, tensor] : replica.Buffers()) {
    tensors.layout.kept.push_back(Served(name, tensor));
    tensors.kept.push_back(tensor);
  }
  return tensors;
}

WorkerStrategy::WorkerStrategy(std::unique_ptr<Strategy> replica,
                               ReplicaTensors tensors,
                               std::vector<Slice> slices)
    : replica_(std::move(replica)),
      tensors_(std::move(tensors)),
      slices_(std::move(slices)) {}

void WorkerStrategy::Connect(WorkerClient::Setup setup, bool in_step) {
  client_ = std::make_unique<WorkerClient>(std::move(setup));
  if (!in_step) return;
  replica_->SetMeanWeight(
      [this](double mine) { return client_->MeanWeight(step_ + 1, mine); });
}

absl::StatusOr<Score> WorkerStrategy::TrainStep(const Batch& batch,
                                                double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(const Score score, ComputeGradients(batch));
  TANDEM_RETURN_IF_ERROR(Update(learning_rate));
  return score;
}

absl::StatusOr<Score> WorkerStrategy::ComputeGradients(const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(score_, replica_->ComputeGradients(batch));
  return score_;
}

absl::Status WorkerStrategy::PushAndPull(
    WorkerClient::StepPush push, const std::vector<at::Tensor>& gradients) {
  // The replica's step is over, without an update of its own.
  TANDEM_RETURN_IF_ERROR(replica_->SkipUpdate());
  alike_ = false;
  push.step = ++step_;
  push.score = {score_, AuxiliaryLosses(), NamedSums()};
  TANDEM_RETURN_IF_ERROR(client_->Push(push, gradients, tensors_.trained));
  return tensors_.UpdateCopies();
}

absl::Status WorkerStrategy::Update(double learning_rate) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& each : tensors_.trained) {
    gradients.push_back(each.grad());
  }
  WorkerClient::StepPush push;
  push.learning_rate = learning_rate;
  return PushAndPull(std::move(push), gradients);
}

absl::Status WorkerStrategy::SkipUpdate() {
  WorkerClient::StepPush push;
  push.skips = true;
  return PushAndPull(std::move(push),
                     std::vector<at::Tensor>(tensors_.trained.size()));
}

void WorkerStrategy::ResumeAt(int64_t steps) {
  step_ = steps;
  replica_->ResumeAt(steps);
}

absl::Status WorkerStrategy::Synchronise() {
  if (alike_) return absl::OkStatus();
  alike_ = true;
  TANDEM_RETURN_IF_ERROR(client_->Meet(tensors_.trained, tensors_.kept));
  return tensors_.UpdateCopies();
}

}  // namespace tandem
