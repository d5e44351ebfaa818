#include "parallel/flat_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: a cache line, a vector of AVX-512

int64_t AlignUp(int64_t elements, const at::Tensor& like) {
  const int64_t unit = std::max<int64_t>(
      1, kAlignment / static_cast<int64_t>(like.element_size()));
  return (elements + unit - 1) / unit * unit;
}

// Notes that a gradient has been accumulated. Called with the gradients that
// went in: none when backward reached the parameter with an undefined one.
class NoteGradient : public torch::autograd::FunctionPostHook {
 public:
  NoteGradient(std::shared_ptr<std::vector<char>> flags, size_t index)
      : flags_(std::move(flags)), index_(index) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& inputs) override {
    if (!inputs.empty() && inputs[0].defined()) (*flags_)[index_] = 1;
    return outputs;
  }

 private:
  std::shared_ptr<std::vector<char>> flags_;
  size_t index_;
};

bool LiesIn(const at::Tensor& view, const at::Tensor& flat, int64_t offset) {
  return view.defined() && view.is_alias_of(flat) &&
         view.storage_offset() == offset;
}

}  // namespace

FlatBuffer::FlatBuffer(const NamedTensors& parameters,
                       const std::vector<int64_t>& positions)
    : has_gradient_(std::make_shared<std::vector<char>>(parameters.size())) {
  CHECK(!parameters.empty());
  CHECK_EQ(parameters.size(), positions.size());
  const at::Tensor& first = parameters[0].second;
  int64_t size = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    CHECK(parameter.is_leaf() && parameter.requires_grad()) << name;
    CHECK(parameter.device() == first.device() &&
          parameter.scalar_type() == first.scalar_type())
        << name;
    const int64_t end = size + AlignUp(parameter.numel(), first);
    slots_.push_back(
        {name, parameter, positions[i], size, parameter.numel(), end});
    size = end;
  }
  values_ = at::zeros({size}, first.options().requires_grad(false));
  grads_ = at::zeros_like(values_);
  CHECK_EQ(reinterpret_cast<uintptr_t>(values_.data_ptr()) % kAlignment, 0u);
  CHECK_EQ(reinterpret_cast<uintptr_t>(grads_.data_ptr()) % kAlignment, 0u);
  for (const FlatSlot& slot : slots_) Place(slot);
  NoteGradients();
}

FlatBuffer::~FlatBuffer() = default;

// `slot` by value: a tensor is a handle, and set_data wants a mutable one.
void FlatBuffer::Place(FlatSlot slot) {
  at::NoGradGuard no_grad;
  at::Tensor& parameter = slot.parameter;
  // What overlaps itself, or has holes, cannot keep its strides.
  if (!parameter.is_non_overlapping_and_dense()) {
    parameter.set_data(parameter.detach().contiguous());
  }
  const at::Tensor value = View(values_, slot);
  value.copy_(parameter);
  parameter.set_data(value);
  parameter.mutable_grad() = View(grads_, slot);
}

void FlatBuffer::NoteGradients() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    auto accumulator =
        torch::autograd::impl::grad_accumulator(slots_[i].parameter);
    accumulator->add_post_hook(
        std::make_unique<NoteGradient>(has_gradient_, i));
    accumulators_.push_back(std::move(accumulator));
  }
}

at::Tensor FlatBuffer::NewZeros() const { return at::zeros_like(values_); }

at::Tensor FlatBuffer::View(const at::Tensor& flat,
                            const FlatSlot& slot) const {
  return flat.as_strided(slot.parameter.sizes(), slot.parameter.strides(),
                         slot.offset);
}

void FlatBuffer::ZeroGrad() {
  grads_.zero_();
  std::fill(has_gradient_->begin(), has_gradient_->end(), 0);
}

absl::Status FlatBuffer::CheckViews() const {
  for (const FlatSlot& slot : slots_) {
    if (!LiesIn(slot.parameter, values_, slot.offset) ||
        !LiesIn(slot.parameter.grad(), grads_, slot.offset)) {
      return absl::InternalError(absl::StrCat(
          "parameter ", slot.name,
          " or its gradient was replaced by another tensor since training ",
          "began: change values in place"));
    }
  }
  return absl::OkStatus();
}

FlatBuffers MakeFlatBuffers(const NamedTensors& parameters) {
  struct Group {
    NamedTensors parameters;
    std::vector<int64_t> positions;
  };
  std::vector<Group> groups;
  std::map<std::pair<std::string, at::ScalarType>, size_t> group_of;
  std::set<c10::TensorImpl*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].second;
    if (!tensor.requires_grad()) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    const auto [at, fresh] = group_of.try_emplace(
        {tensor.device().str(), tensor.scalar_type()}, groups.size());
    if (fresh) groups.emplace_back();
    Group& group = groups[at->second];
    group.parameters.push_back(parameters[i]);
    group.positions.push_back(i);
  }
  FlatBuffers buffers;
  for (Group& group : groups) {
    std::reverse(group.parameters.begin(), group.parameters.end());
    std::reverse(group.positions.begin(), group.positions.end());
    buffers.push_back(
        std::make_unique<FlatBuffer>(group.parameters, group.positions));
  }
  return buffers;
}

}  // namespace tandem
