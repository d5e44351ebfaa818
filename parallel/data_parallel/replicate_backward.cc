#include "parallel/data_parallel/replicate_backward.h"

#include <ATen/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "parallel/data_parallel/device_streams.h"
#include "parallel/data_parallel/gradient_tree.h"

namespace tandem {
namespace {

using torch::autograd::variable_list;

constexpr int64_t kBytesOfNode = int64_t{4} << 20;

// Input r * n + i is the gradient of tensor i of replica r; output i the sum.
// Runs as soon as it can, as gradient accumulators do.
class ReplicateBackward : public torch::autograd::Node {
 public:
  explicit ReplicateBackward(std::vector<c10::Device> devices)
      : Node(std::numeric_limits<uint64_t>::max()),
        devices_(std::move(devices)),
        streams_(CurrentStreams(devices_)) {}

  std::string name() const override { return "ReplicateBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const size_t count = num_outputs();
    std::vector<variable_list> of_replicas;
    for (size_t r = 0; r < devices_.size(); ++r) {
      variable_list mine(count);
      for (size_t i = 0; i < count; ++i) {
        if (!task_should_compute_output(i)) continue;
        mine[i] = std::move(gradients[r * count + i]);
      }
      of_replicas.push_back(std::move(mine));
    }
    const c10::MultiStreamGuard guard(streams_);
    return SumOverDevices(std::move(of_replicas), devices_);
  }

 private:
  const std::vector<c10::Device> devices_;
  const std::vector<c10::Stream> streams_;
};

void RouteGroup(const variable_list& masters,
                const std::vector<variable_list>& replicas,
                const std::vector<c10::Device>& devices) {
  const auto node = c10::make_intrusive<ReplicateBackward>(devices);
  node->set_next_edges(torch::autograd::collect_next_edges(masters));
  for (const variable_list& replica : replicas) {
    for (const at::Tensor& each : replica) {
      if (!each.defined()) {
        node->add_input_metadata(torch::autograd::Node::undefined_input());
        continue;
      }
      const uint32_t number = node->add_input_metadata(each);
      torch::autograd::impl::set_gradient_edge(each, {node, number});
    }
  }
}

}  // namespace

void RouteGradients(const std::vector<at::Tensor>& masters,
                    const std::vector<std::vector<at::Tensor>>& replicas,
                    const std::vector<c10::Device>& devices) {
  CHECK(!replicas.empty() && replicas.size() <= devices.size());
  const std::vector<c10::Device> theirs(
      devices.begin(),
      devices.begin() + static_cast<std::ptrdiff_t>(replicas.size()));
  for (size_t begin = 0; begin < masters.size();) {
    variable_list group;
    std::vector<variable_list> of_replicas(replicas.size());
    int64_t bytes = 0;
    size_t end = begin;
    for (; end < masters.size() && bytes < kBytesOfNode; ++end) {
      bytes += static_cast<int64_t>(masters[end].nbytes());
      group.push_back(masters[end]);
      for (size_t r = 0; r < replicas.size(); ++r) {
        of_replicas[r].push_back(replicas[r][end]);
      }
    }
    RouteGroup(group, of_replicas, theirs);
    begin = end;
  }
}

void EndRoute(const at::Tensor& replica) {
  torch::autograd::impl::set_gradient_edge(replica, {});
}

}  // namespace tandem
