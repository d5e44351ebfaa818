#include "parallel/parameter_server/server_strategy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <utility>

#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/state_part.h"
#include "parallel/ddp/model_state.h"
#include "parallel/parameter_server/piece_stream.h"
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

}  // namespace

ServerStrategy::ServerStrategy(Setup setup) : setup_(std::move(setup)) {}

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

NamedTensors ServerStrategy::KeptPieces(const StateParts& parts) const {
  NamedTensors pieces;
  const at::Tensor kept = server_->kept();
  if (setup_.server != 0 || !kept.defined()) return pieces;
  for (const Piece& piece : setup_.kept.pieces) {
    const bool is_parameter = piece.tensor < setup_.layout.frozen;
    if (is_parameter ? !parts.parameters : !parts.buffers) continue;
    const TensorInfo& info = setup_.layout.kept[piece.tensor].info;
    pieces.emplace_back(PieceName(info.name, piece.begin),
                        ViewOf(kept, piece, info.dtype));
  }
  return pieces;
}

NamedTensors ServerStrategy::ModelPieces(const StateParts& parts) const {
  NamedTensors pieces = KeptPieces(parts);
  if (!parts.parameters) return pieces;
  for (auto& each : server_->served().Pieces()) {
    pieces.push_back(std::move(each));
  }
  return pieces;
}

absl::StatusOr<NamedTensors> ServerStrategy::Pieces(
    const StateParts& parts) const {
  return CheckpointTensors(
      ModelPieces(parts),
      parts.optimizer ? server_->served().OptimizerPieces() : NamedTensors());
}

absl::StatusOr<StatePart> ServerStrategy::PartToSave() {
  TANDEM_ASSIGN_OR_RETURN(const NamedTensors pieces,
                          Pieces({true, true, true}));
  return StateOfSlices(pieces, setup_.layout);
}

absl::Status ServerStrategy::StreamState(const StateParts& parts,
                                         TensorSink& sink) {
  const auto stream = [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const NamedTensors pieces, Pieces(parts));
    JoiningSink joining(setup_.layout, &sink);
    return StreamToRank0(pieces, *setup_.servers, joining);
  };
  const absl::Status status = stream();
  if (!status.ok()) setup_.servers->Abort(status);
  return status;
}

absl::Status ServerStrategy::CheckModelState(const StoredTensors& state) const {
  return tandem::CheckModelState(state, Shapes(setup_.layout));
}

absl::Status ServerStrategy::LoadModelState(const StoredTensors& state) {
  TANDEM_RETURN_IF_ERROR(CheckModelState(state));
  TANDEM_RETURN_IF_ERROR(server_->served().LoadValues(state));
  if (setup_.server != 0) return absl::OkStatus();
  std::vector<at::Tensor> kept;
  for (const ServedTensor& each : setup_.layout.kept) {
    for (const StoredTensor& stored : state) {
      if (stored.info.name != each.info.name) continue;
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, stored.read());
      kept.push_back(
          at::empty_strided(each.info.sizes, each.strides, values.options()));
      kept.back().copy_(values);
    }
  }
  const at::Tensor bytes = at::empty({setup_.kept.bytes}, at::kByte);
  Pack(kept, setup_.kept, bytes);
  server_->set_kept(bytes);
  return absl::OkStatus();
}

}  // namespace tandem
