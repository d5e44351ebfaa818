// Where a replica's parameters and gradients lie.

#include <ATen/ops/zeros.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "parallel/ddp/replica.h"

namespace tandem {

Replica::Kind Replica::KindOf(const std::string& name) const {
  if (absl::c_linear_search(options_.parameters_to_ignore, name)) {
    return Kind::kIgnored;
  }
  if (absl::c_linear_search(options_.delay_all_reduce_named_params, name)) {
    return Kind::kDelayed;
  }
  return Kind::kAveraged;
}

absl::Status Replica::Flatten(const NamedTensors& parameters) {
  absl::Status allocated;
  for (const Kind kind : {Kind::kAveraged, Kind::kDelayed, Kind::kIgnored}) {
    FlatBufferOptions options;
    for (const auto& each : parameters) {
      options.traits.emplace_back();
      if (KindOf(each.first) != kind) continue;
      ParameterTraits traits;
      if (kind == Kind::kIgnored) traits.reduce_axes.clear();
      if (options_.optimizer_group) {
        traits.optimizer_group = options_.optimizer_group(each.first);
      }
      options.traits.back() = std::move(traits);
    }
    if (kind != Kind::kIgnored) {
      options.allocate = [&](int64_t numel, const at::TensorOptions& like) {
        auto buffer = NewGroupBuffer(group_, numel, like);
        if (buffer.ok()) return *std::move(buffer);
        allocated.Update(buffer.status());
        return at::zeros({numel}, like);
      };
    }
    for (auto& buffer : MakeFlatBuffers(parameters, options)) {
      if (kind == Kind::kAveraged) averaged_.push_back(buffer.get());
      if (kind == Kind::kDelayed) delayed_.push_back(buffer.get());
      if (kind == Kind::kIgnored) ignored_.push_back(buffer.get());
      flat_.push_back(std::move(buffer));
    }
  }
  return allocated;
}

FlatBufferList Replica::flat_buffers_of(int64_t group) const {
  std::vector<FlatBuffer*> buffers;
  for (const auto& buffer : flat_) {
    if (buffer->group() == group) buffers.push_back(buffer.get());
  }
  return FlatBufferList(std::move(buffers));
}

FlatBufferList Replica::averaged_flat_buffers() const {
  std::vector<FlatBuffer*> buffers = averaged_;
  buffers.insert(buffers.end(), delayed_.begin(), delayed_.end());
  return FlatBufferList(std::move(buffers));
}

FlatBufferList Replica::ignored_flat_buffers() const {
  return FlatBufferList(ignored_);
}

void Replica::ZeroGrad() {
  for (const auto& buffer : flat_) buffer->ZeroGrad();
}

}  // namespace tandem
