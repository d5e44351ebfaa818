#include "parallel/parameter_server/served_layout.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/accumulate.h>
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/round_up.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

int64_t ElementBytes(c10::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t MaskBytes(const Slice& slice) {
  return RoundUp(static_cast<int64_t>(slice.pieces.size()), kAlignment);
}

// "trained", "frozen", "buffer" or "alias", then the tensor's fields; an
// alias's last one is the place of what it names.
std::string Line(absl::string_view kind, const ServedTensor& tensor) {
  return absl::StrCat(
      kind, "\t", tensor.info.name, "\t", static_cast<int>(tensor.info.dtype),
      "\t", absl::StrJoin(tensor.info.sizes, ","), "\t",
      absl::StrJoin(tensor.strides, ","), "\t", tensor.group, "\n");
}

bool ParseNumbers(absl::string_view text, std::vector<int64_t>* numbers) {
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    numbers->push_back(0);
    if (!absl::SimpleAtoi(word, &numbers->back())) return false;
  }
  return true;
}

// False for a line that is none.
bool ParseLine(const std::vector<std::string>& fields, ServedTensor* tensor) {
  int dtype = 0;
  if (fields.size() != 6 || !absl::SimpleAtoi(fields[2], &dtype) ||
      !absl::SimpleAtoi(fields[5], &tensor->group)) {
    return false;
  }
  tensor->info.name = fields[1];
  tensor->info.dtype = static_cast<c10::ScalarType>(dtype);
  return ParseNumbers(fields[3], &tensor->info.sizes) &&
         ParseNumbers(fields[4], &tensor->strides);
}

// Bytes [begin, end) of the row of all tensors; `last`: to its very end.
Slice CutOut(const std::vector<ServedTensor>& tensors, int64_t begin,
             int64_t end, bool last) {
  Slice slice;
  slice.bytes = end - begin;
  int64_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t element = ElementBytes(tensors[i].info.dtype);
    const int64_t numel = c10::multiply_integers(tensors[i].info.sizes);
    const int64_t from = std::max(at, begin);
    const int64_t to = std::min(at + numel * element, end);
    const bool empty_here =
        numel == 0 && at >= begin && (at < end || (last && at == end));
    if (to > from || empty_here) {
      slice.pieces.push_back({i, (from - at) / element,
                              std::max<int64_t>(0, to - from) / element,
                              from - begin});
    }
    at += RoundUp(numel * element, kAlignment);
  }
  return slice;
}

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

std::map<std::string, int64_t> ServedLayout::Groups() const {
  std::map<std::string, int64_t> groups;
  for (const ServedTensor& each : trained) groups[each.info.name] = each.group;
  return groups;
}

std::string ServedLayout::Encode() const {
  std::string text;
  for (const ServedTensor& each : trained) text += Line("trained", each);
  for (size_t i = 0; i < kept.size(); ++i) {
    text += Line(i < frozen ? "frozen" : "buffer", kept[i]);
  }
  for (const auto& [name, tensor] : aliases) {
    ServedTensor alias;
    alias.info.name = name;
    alias.group = static_cast<int64_t>(tensor);
    text += Line("alias", alias);
  }
  return text;
}

absl::StatusOr<ServedLayout> ServedLayout::Decode(absl::string_view text) {
  ServedLayout layout;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    ServedTensor tensor;
    if (!ParseLine(fields, &tensor)) {
      return absl::InternalError(
          absl::StrCat("not the description of a served tensor: ", line));
    }
    if (fields[0] == "alias") {
      layout.aliases.emplace_back(tensor.info.name,
                                  static_cast<size_t>(tensor.group));
      continue;
    }
    if (fields[0] == "frozen") ++layout.frozen;
    auto& list = fields[0] == "trained" ? layout.trained : layout.kept;
    list.push_back(std::move(tensor));
  }
  return layout;
}

std::vector<Slice> CutIntoSlices(const std::vector<ServedTensor>& tensors,
                                 int servers) {
  CHECK_GE(servers, 1);
  int64_t blocks = 0;  // of 64 bytes
  for (const ServedTensor& each : tensors) {
    blocks += RoundUp(c10::multiply_integers(each.info.sizes) *
                          ElementBytes(each.info.dtype),
                      kAlignment) /
              kAlignment;
  }
  std::vector<Slice> slices;
  for (int64_t s = 0; s < servers; ++s) {
    slices.push_back(CutOut(tensors, blocks * s / servers * kAlignment,
                            blocks * (s + 1) / servers * kAlignment,
                            s + 1 == servers));
  }
  return slices;
}

at::Tensor InMemoryOrder(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1},
                                    tensor.storage_offset());
}

at::Tensor PieceView(const at::Tensor& slice, const Piece& piece,
                     c10::ScalarType dtype) {
  const int64_t bytes = piece.length * ElementBytes(dtype);
  return slice.narrow(0, piece.offset, bytes).view(dtype);
}

void Pack(const std::vector<at::Tensor>& tensors, const Slice& slice,
          const at::Tensor& bytes) {
  at::NoGradGuard no_grad;
  for (const Piece& piece : slice.pieces) {
    const at::Tensor& tensor = tensors[piece.tensor];
    if (!tensor.defined() || piece.length == 0) continue;
    PieceView(bytes, piece, tensor.scalar_type())
        .copy_(InMemoryOrder(tensor).narrow(0, piece.begin, piece.length));
  }
}

void Unpack(const at::Tensor& bytes, const Slice& slice,
            const std::vector<at::Tensor>& tensors) {
  at::NoGradGuard no_grad;
  for (const Piece& piece : slice.pieces) {
    const at::Tensor& tensor = tensors[piece.tensor];
    if (!tensor.defined() || piece.length == 0) continue;
    InMemoryOrder(tensor)
        .narrow(0, piece.begin, piece.length)
        .copy_(PieceView(bytes, piece, tensor.scalar_type()));
  }
}

int64_t GradientMessage::BytesFor(const Slice& slice) {
  return MaskBytes(slice) + slice.bytes;
}

void GradientMessage::Put(const std::vector<at::Tensor>& gradients) {
  auto* const mask = bytes_.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < slice_->pieces.size(); ++i) {
    mask[i] = gradients[slice_->pieces[i].tensor].defined() ? 1 : 0;
  }
  Pack(gradients, *slice_, this->gradients());
}

bool GradientMessage::has(size_t piece) const {
  return bytes_.const_data_ptr<uint8_t>()[piece] != 0;
}

at::Tensor GradientMessage::gradients() const {
  return bytes_.narrow(0, MaskBytes(*slice_), slice_->bytes);
}

std::string PieceName(const std::string& name, int64_t begin) {
  return absl::StrCat(name, "@", begin);
}

StoredTensor StoredPiece(const StoredTensor& whole, const Piece& piece,
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
    const NamedPiece named = Split(piece);
    if (values.dim() == 0) {
      if (named.begin == 0) part.tensors.emplace_back(named.name, values);
      continue;
    }
    const ServedTensor& whole = tensors.Find(named.name);
    part.tensors.emplace_back(named.name, values);
    part.slices[named.name] = {whole.info.sizes, whole.strides, named.begin};
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
                                       ? ParameterName(OptimizerStateName(name))
                                       : name);
  CHECK(found != tensors_.end()) << name;
  return *found->second;
}

}  // namespace tandem
