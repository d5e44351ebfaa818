#include "parallel/parameter_server/served_slice.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/optimizer.h"
#include "parallel/parameter_server/served_layout.h"

namespace tandem {
namespace {

const Piece& FindPiece(const Slice& slice, const FlatSlot& slot) {
  return slice.pieces[static_cast<size_t>(slot.position)];
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedSlice>> ServedSlice::Create(
    const ServedLayout& layout, const Slice& slice,
    const UpdateOptions& options) {
  auto served = absl::WrapUnique(new ServedSlice(layout, slice, options));
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&]() -> absl::Status { return served->Prepare(); }));
  return served;
}

absl::Status ServedSlice::Prepare() {
  NamedTensors parts;
  FlatBufferOptions flat;
  for (const Piece& piece : slice_->pieces) {
    const ServedTensor& tensor = layout_->trained[piece.tensor];
    parts.emplace_back(
        tensor.info.name,
        at::zeros({piece.length}, tensor.info.dtype).requires_grad_(true));
    flat.traits.emplace_back(ParameterTraits());
    flat.traits.back()->optimizer_group = tensor.group;
  }
  buffers_ = MakeFlatBuffers(parts, flat);
  TANDEM_ASSIGN_OR_RETURN(update_, ParameterUpdate::Create(options_, buffers_));
  return absl::OkStatus();
}

void ServedSlice::SetValues(const at::Tensor& bytes) {
  at::NoGradGuard no_grad;
  for (const auto& buffer : buffers_) {
    for (const FlatSlot& slot : buffer->slots()) {
      slot.parameter.detach().copy_(PieceView(bytes, FindPiece(*slice_, slot),
                                              slot.parameter.scalar_type()));
    }
  }
}

at::Tensor ServedSlice::Values() const {
  at::NoGradGuard no_grad;
  // Zeros: what lies between pieces is sent, too.
  const at::Tensor bytes = at::zeros({slice_->bytes}, at::kByte);
  for (const auto& buffer : buffers_) {
    for (const FlatSlot& slot : buffer->slots()) {
      PieceView(bytes, FindPiece(*slice_, slot), slot.parameter.scalar_type())
          .copy_(slot.parameter.detach());
    }
  }
  return bytes;
}

bool ServedSlice::Gather(const std::vector<at::Tensor>& pushes,
                         const FlatSlot& slot, const at::Tensor& into) const {
  const Piece& piece = FindPiece(*slice_, slot);
  const double share = 1.0 / static_cast<double>(pushes.size());
  bool any = false;
  for (const at::Tensor& bytes : pushes) {
    const GradientMessage push(*slice_, bytes);
    if (!push.has(static_cast<size_t>(slot.position))) continue;
    const at::Tensor part =
        PieceView(push.gradients(), piece, into.scalar_type());
    if (pushes.size() > 1) MultiplyInPlace(part, share);
    if (any) {
      into.add_(part);
    } else {
      into.copy_(part);
    }
    any = true;
  }
  return any;
}

absl::StatusOr<std::optional<GradientNorms>> ServedSlice::Norms() const {
  if (options_.clip_norm == 0) return std::optional<GradientNorms>();
  // In the order of the model, as every strategy sums it.
  std::vector<double> sums(slice_->pieces.size(), 0);
  const double p = options_.clip_norm_type;
  for (const GradientSum& each : GradientSums(buffers_, p)) {
    sums[static_cast<size_t>(each.slot->position)] = each.sum;
  }
  TANDEM_ASSIGN_OR_RETURN(const double norm, ClippingNorm(sums, p));
  if (options_.error_if_nonfinite && !std::isfinite(norm)) {
    std::string culprit;
    for (size_t i = 0; i < sums.size() && culprit.empty(); ++i) {
      if (std::isfinite(sums[i])) continue;
      culprit = layout_->trained[slice_->pieces[i].tensor].info.name;
    }
    return NonFiniteNormError(norm, p, culprit);
  }
  return std::optional<GradientNorms>(GradientNorms{norm, 0});
}

absl::Status ServedSlice::Apply(const std::vector<at::Tensor>& pushes,
                                double learning_rate) {
  at::NoGradGuard no_grad;
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    for (const auto& buffer : buffers_) {
      for (size_t i = 0; i < buffer->slots().size(); ++i) {
        const FlatSlot& slot = buffer->slots()[i];
        const at::Tensor into =
            buffer->grads().narrow(0, slot.offset, slot.numel);
        buffer->set_has_gradient(i, Gather(pushes, slot, into));
      }
    }
    update_->ClipValues();
  }));
  TANDEM_ASSIGN_OR_RETURN(const std::optional<GradientNorms> norms, Norms());
  return update_->Step(learning_rate, norms);
}

int64_t ServedSlice::SliceBegin(const std::string& name) const {
  for (const Piece& piece : slice_->pieces) {
    if (layout_->trained[piece.tensor].info.name == name) return piece.begin;
  }
  return 0;
}

NamedTensors ServedSlice::Pieces() const {
  NamedTensors pieces;
  for (const auto& buffer : buffers_) {
    for (const FlatSlot& slot : buffer->slots()) {
      const Piece& piece = FindPiece(*slice_, slot);
      const at::Tensor values = slot.parameter.detach();
      pieces.emplace_back(PieceName(slot.name, piece.begin), values);
      for (const auto& [alias, tensor] : layout_->aliases) {
        if (tensor != piece.tensor) continue;
        pieces.emplace_back(PieceName(alias, piece.begin), values);
      }
    }
  }
  return pieces;
}

NamedTensors ServedSlice::OptimizerPieces() const {
  NamedTensors pieces;
  for (const auto& [name, tensor] : update_->optimizer().State()) {
    const int64_t begin = SliceBegin(ParameterName(name));
    // What is a parameter's as a whole ("step"): its first piece's server says.
    if (tensor.dim() == 0 && begin > 0) continue;
    pieces.emplace_back(PieceName(name, begin), tensor);
  }
  return pieces;
}

absl::Status ServedSlice::LoadValues(const StoredTensors& state) {
  std::map<std::string, const StoredTensor*> given;
  for (const StoredTensor& each : state) given[each.info.name] = &each;
  at::NoGradGuard no_grad;
  for (const auto& buffer : buffers_) {
    for (const FlatSlot& slot : buffer->slots()) {
      const Piece& piece = FindPiece(*slice_, slot);
      const StoredTensor part = StoredPiece(*given.at(slot.name), piece,
                                            layout_->trained[piece.tensor]);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, part.read());
      slot.parameter.detach().copy_(values);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredTensors> ServedSlice::PiecesOfState(
    const StoredTensors& state) const {
  std::map<std::string, const Piece*> mine;
  for (const Piece& piece : slice_->pieces) {
    mine[layout_->trained[piece.tensor].info.name] = &piece;
  }
  std::map<std::string, const ServedTensor*> known;
  for (const ServedTensor& each : layout_->trained) {
    known[each.info.name] = &each;
  }
  StoredTensors pieces;
  for (const StoredTensor& each : state) {
    const std::string parameter = ParameterName(each.info.name);
    const auto tensor = known.find(parameter);
    const auto piece = mine.find(parameter);
    if (tensor != known.end() && piece == mine.end()) continue;  // another's
    // State of the parameter as a whole, or of none, stays as it is.
    if (tensor == known.end() || absl::EndsWith(each.info.name, ".step")) {
      pieces.Add(each);
      continue;
    }
    const ServedTensor& served = *tensor->second;
    if (each.info.sizes != served.info.sizes) {
      TensorInfo expected = served.info;
      expected.name = each.info.name;
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer state ", each.info.name, ": expected ",
                       Describe(expected), ", got ", Describe(each.info)));
    }
    pieces.Add(StoredPiece(each, *piece->second, served));
  }
  return pieces;
}

absl::Status ServedSlice::CheckOptimizerState(
    const StoredTensors& state) const {
  TANDEM_ASSIGN_OR_RETURN(const StoredTensors pieces, PiecesOfState(state));
  return update_->optimizer().CheckState(pieces);
}

absl::Status ServedSlice::LoadOptimizerState(const StoredTensors& state) {
  TANDEM_ASSIGN_OR_RETURN(const StoredTensors pieces, PiecesOfState(state));
  return update_->optimizer().LoadState(pieces);
}

}  // namespace tandem
