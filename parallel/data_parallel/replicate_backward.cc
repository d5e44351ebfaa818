#include "parallel/data_parallel/replicate_backward.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "parallel/channel/stream_order.h"

namespace tandem {
namespace {

using torch::autograd::variable_list;

// Input r is the gradient of replica r; the output is the sum. Runs as soon as
// it can, as gradient accumulators do.
class ReplicateBackward : public torch::autograd::Node {
 public:
  explicit ReplicateBackward(const std::vector<c10::Device>& devices)
      : Node(std::numeric_limits<uint64_t>::max()),
        devices_(devices),
        streams_(CurrentStreams(devices_)) {}

  std::string name() const override { return "ReplicateBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const c10::MultiStreamGuard guard(streams_);
    return {SumOverDevices(std::move(gradients), devices_)};
  }

 private:
  const std::vector<c10::Device> devices_;
  const std::vector<c10::Stream> streams_;
};

// Dense and sparse add up in this order alone.
at::Tensor Sum(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kSparse && b.layout() != at::kSparse ? b + a : a + b;
}

}  // namespace

void RouteGradient(const at::Tensor& master,
                   const std::vector<at::Tensor>& replicas,
                   const std::vector<c10::Device>& devices) {
  CHECK(!replicas.empty() && replicas.size() <= devices.size());
  const auto end =
      devices.begin() + static_cast<std::ptrdiff_t>(replicas.size());
  const auto node = c10::make_intrusive<ReplicateBackward>(
      std::vector<c10::Device>(devices.begin(), end));
  node->set_next_edges(torch::autograd::collect_next_edges(master));
  for (const at::Tensor& each : replicas) {
    if (!each.defined()) {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    const uint32_t number = node->add_input_metadata(each);
    torch::autograd::impl::set_gradient_edge(each, {node, number});
  }
}

void EndRoute(const at::Tensor& replica) {
  torch::autograd::impl::set_gradient_edge(replica, {});
}

at::Tensor SumOverDevices(std::vector<at::Tensor> gradients,
                          const std::vector<c10::Device>& devices) {
  const size_t count = gradients.size();
  CHECK(count > 0 && count <= devices.size());
  for (size_t step = 1; step < count; step *= 2) {
    for (size_t i = 0; i + step < count; i += 2 * step) {
      at::Tensor other = std::exchange(gradients[i + step], {});
      if (!other.defined()) continue;
      if (devices[i + step] != devices[i]) other = other.to(devices[i]);
      at::Tensor& sum = gradients[i];
      sum = sum.defined() ? Sum(sum, other) : other;
    }
  }
  return std::move(gradients[0]);
}

}  // namespace tandem
