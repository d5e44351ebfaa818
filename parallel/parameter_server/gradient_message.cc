#include "parallel/parameter_server/gradient_message.h"

#include <utility>

#include "core/base/round_up.h"
#include "parallel/optim/aligned_length.h"

namespace tandem {
namespace {

int64_t MaskBytes(const Slice& slice) {
  return RoundUp(static_cast<int64_t>(slice.pieces.size()), kAlignment);
}

}  // namespace

int64_t GradientMessage::BytesFor(const Slice& slice) {
  return MaskBytes(slice) + slice.bytes;
}

GradientMessage::GradientMessage(const Slice& slice, at::Tensor bytes)
    : slice_(&slice), bytes_(std::move(bytes)) {}

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

}  // namespace tandem
