#include "parallel/parameter_server/piece_stream.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/accumulate.h>
#include <glog/logging.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

struct NamedPiece {
  std::string name;
  int64_t begin = 0;
};

NamedPiece Split(const std::string& name) {
  NamedPiece piece;
  const size_t at = name.rfind('@');
  CHECK(at != std::string::npos &&
        absl::SimpleAtoi(name.substr(at + 1), &piece.begin))
      << name;
  piece.name = name.substr(0, at);
  return piece;
}

}  // namespace

std::string PieceName(const std::string& name, int64_t begin) {
  return absl::StrCat(name, "@", begin);
}

StoredTensor PartOf(const StoredTensor& whole, const Piece& piece,
                    const ServedTensor& tensor) {
  StoredTensor part = whole;
  part.info.sizes = {piece.length};
  part.read_into = nullptr;  // it is of the whole
  part.read = [read = whole.read, piece, sizes = tensor.info.sizes,
               strides = tensor.strides]() -> absl::StatusOr<at::Tensor> {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, read());
    return CatchTorchOr([&] {
      const at::Tensor laid_out =
          at::empty_strided(sizes, strides, values.options());
      laid_out.copy_(values);
      return InMemoryOrder(laid_out)
          .narrow(0, piece.begin, piece.length)
          .clone();
    });
  };
  return part;
}

StatePart StateOfSlices(const NamedTensors& pieces,
                        const ServedLayout& layout) {
  const ServedTensors tensors(layout);
  StatePart part;
  for (const auto& [piece, values] : pieces) {
    const NamedPiece its = Split(piece);
    if (values.dim() == 0) {
      if (its.begin == 0) part.tensors.emplace_back(its.name, values);
      continue;
    }
    const ServedTensor& whole = tensors.Find(its.name);
    part.tensors.emplace_back(its.name, values);
    part.slices[its.name] = {whole.info.sizes, whole.strides, its.begin};
  }
  return part;
}

ServedTensors::ServedTensors(const ServedLayout& layout) {
  for (const auto* list : {&layout.trained, &layout.kept}) {
    for (const ServedTensor& each : *list) tensors_[each.info.name] = &each;
  }
  for (const auto& [alias, tensor] : layout.aliases) {
    tensors_[alias] = &layout.trained[tensor];
  }
}

const ServedTensor& ServedTensors::Find(const std::string& name) const {
  const auto found = tensors_.find(IsOptimizerStateName(name)
                                       ? ParameterOf(OptimizerStateName(name))
                                       : name);
  CHECK(found != tensors_.end()) << name;
  return *found->second;
}

JoiningSink::JoiningSink(const ServedLayout& layout, TensorSink* sink)
    : tensors_(layout), sink_(sink) {}

TensorInfo JoiningSink::WholeTensor(const TensorInfo& piece) const {
  TensorInfo whole = piece;
  whole.name = Split(piece.name).name;
  if (!piece.sizes.empty()) whole.sizes = tensors_.Find(whole.name).info.sizes;
  return whole;
}

bool JoiningSink::ComesBefore(const TensorInfo& a, const TensorInfo& b) const {
  const NamedPiece first = Split(a.name);
  const NamedPiece second = Split(b.name);
  if (first.name == second.name) return first.begin < second.begin;
  return sink_->ComesBefore(WholeTensor(a), WholeTensor(b));
}

absl::Status JoiningSink::Begin(std::vector<TensorInfo> infos) {
  std::vector<TensorInfo> wholes;
  for (const TensorInfo& each : infos) {
    TensorInfo whole = WholeTensor(each);
    if (wholes.empty() || wholes.back().name != whole.name) {
      wholes.push_back(std::move(whole));
    }
  }
  pieces_ = std::move(infos);
  next_ = 0;
  return sink_->Begin(std::move(wholes));
}

absl::Status JoiningSink::Add(const at::Tensor& values) {
  CHECK_LT(next_, pieces_.size());
  const TensorInfo& piece = pieces_[next_++];
  if (piece.sizes.empty()) return sink_->Add(values);
  const TensorInfo whole = WholeTensor(piece);
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    if (!joined_.defined()) {
      joined_ =
          at::empty({c10::multiply_integers(whole.sizes)}, values.options());
      filled_ = 0;
    }
    if (filled_ == Split(piece.name).begin) {
      joined_.narrow(0, filled_, values.numel()).copy_(values);
      filled_ += values.numel();
    }
  }));
  const bool more =
      next_ < pieces_.size() && Split(pieces_[next_].name).name == whole.name;
  return more ? absl::OkStatus() : HandOn(whole);
}

absl::Status JoiningSink::HandOn(const TensorInfo& whole) {
  const at::Tensor joined = std::exchange(joined_, at::Tensor());
  if (filled_ != joined.numel()) {
    return absl::DataLossError(
        absl::StrCat(whole.name, " is not complete: of ", joined.numel(),
                     " elements, servers have the first ", filled_, " alone"));
  }
  return sink_->Add(
      joined.as_strided(whole.sizes, tensors_.Find(whole.name).strides));
}

}  // namespace tandem
