#include "core/checkpoint/folder/host_copy.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/round_up.h"
#include "core/base/torch_status.h"
#include "core/device/host_memory.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 64;  // as LibTorch's own tensors

std::vector<TensorInfo> TensorForms(const StatePart& part) {
  std::vector<TensorInfo> forms;
  for (const auto& [name, tensor] : part.tensors) {
    forms.push_back(MakeTensorInfo(name, tensor));
  }
  return forms;
}

bool AreAlike(const std::vector<TensorInfo>& a,
              const std::vector<TensorInfo>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TensorInfo& one, const TensorInfo& other) {
                      return one.name == other.name &&
                             one.dtype == other.dtype &&
                             one.sizes == other.sizes;
                    });
}

int64_t TensorBytes(const at::Tensor& tensor) {
  return tensor.numel() * tensor.element_size();
}

// The GPU that has the first tensor of one, else the CPU.
c10::Device StateGpu(const StatePart& part) {
  for (const auto& each : part.tensors) {
    if (each.second.is_cuda()) return each.second.device();
  }
  return c10::kCPU;
}

}  // namespace

// One block: what is pinned piece by piece takes more than it has.
void HostCopy::MakeRoom(const StatePart& part) {
  std::vector<TensorInfo> forms = TensorForms(part);
  if (AreAlike(forms, forms_)) return;
  forms_.clear();
  buffers_.clear();  // before there is the new block
  int64_t bytes = 0;
  for (const auto& each : part.tensors) {
    bytes += RoundUp(TensorBytes(each.second), kAlignment);
  }
  const at::Tensor block = NewPinned(bytes, StateGpu(part));
  int64_t at = 0;
  for (const auto& each : part.tensors) {
    const int64_t tensor_bytes = TensorBytes(each.second);
    buffers_.push_back(block.narrow(0, at, tensor_bytes)
                           .view(each.second.scalar_type())
                           .view(each.second.sizes()));
    at += RoundUp(tensor_bytes, kAlignment);
  }
  forms_ = std::move(forms);
}

absl::StatusOr<StatePart> HostCopy::Take(const StatePart& part) {
  return CatchTorchOr(
      [&] {
        at::NoGradGuard no_grad;
        MakeRoom(part);
        StatePart copy;
        copy.slices = part.slices;
        for (size_t i = 0; i < part.tensors.size(); ++i) {
          buffers_[i].copy_(part.tensors[i].second);
          copy.tensors.emplace_back(part.tensors[i].first, buffers_[i]);
        }
        return copy;
      },
      "copying the state that is to be saved");
}

uint64_t HostCopy::bytes() const {
  uint64_t bytes = 0;
  for (const at::Tensor& each : buffers_) bytes += each.nbytes();
  return bytes;
}

}  // namespace tandem
