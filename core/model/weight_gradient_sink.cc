#include "core/model/weight_gradient_sink.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <tuple>
#include <utility>

#include "core/base/torch_status.h"
#include "core/model/gradient_place.h"

namespace tandem {
namespace {

// The parameter whose accumulator `weight` has. Where saved tensors have hooks
// (activation checkpointing), what a node unpacks is another tensor with the
// same one, and by itself keeps it no longer than the graph does.
at::Tensor LeafParameter(const at::Tensor& weight) {
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  return static_cast<const torch::autograd::AccumulateGrad&>(*accumulator)
      .variable;
}

// A backward that begins at the accumulator of the weight, so that its hooks
// run. An undefined gradient has been put in its place.
void Accumulate(const at::Tensor& weight, const at::Tensor& gradient) {
  if (!gradient.defined()) return GradientPlace::Announce(weight);
  torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::Edge(torch::autograd::impl::grad_accumulator(weight),
                             0)},
      {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
}

// A gradient that several parts come to.
class Sum {
 public:
  void Add(const at::Tensor& part) {
    if (!part.defined()) return;  // it has been put in its place
    if (!sum_.defined()) {
      sum_ = part;
    } else if (is_ours_) {
      sum_.add_(part);
    } else {  // the first part may be somebody else's tensor
      sum_ = sum_.add(part);
      is_ours_ = true;
    }
  }
  at::Tensor Take() {
    is_ours_ = false;
    return std::move(sum_);
  }

 private:
  at::Tensor sum_;
  bool is_ours_ = false;
};

// What is computed together: of the same weights, in the same way, in different
// sinks.
using Group = std::vector<DeferredGradients>;

std::vector<at::Tensor> Compute(Group& group) {
  const DeferredGradients& first = group.front();
  if (first.function != nullptr) {
    std::vector<DeferredGradients::Operands> microbatches;
    for (DeferredGradients& each : group) {
      microbatches.push_back(std::move(each.operands));
    }
    return first.function(first.weights, microbatches, first.settings);
  }
  std::vector<Sum> sums(first.weights.size());
  for (DeferredGradients& each : group) {
    const std::vector<at::Tensor> parts = each.compute();
    each.compute = nullptr;  // what it holds is of no use any more
    for (size_t i = 0; i < sums.size(); ++i) sums[i].Add(parts[i]);
  }
  std::vector<at::Tensor> results;
  for (Sum& sum : sums) results.push_back(sum.Take());
  return results;
}

// In the order in which each was first left. A layer that runs twice in one
// microbatch is in two groups, as autograd too adds up what each gives.
std::vector<Group> GroupByWeights(
    std::vector<std::vector<DeferredGradients>> sinks) {
  using Key = std::tuple<std::vector<const void*>, DeferredGradients::Function,
                         std::vector<int64_t>>;
  std::vector<Group> groups;
  std::map<std::pair<Key, int>, size_t> places;
  for (std::vector<DeferredGradients>& sink : sinks) {
    std::map<Key, int> times;
    for (DeferredGradients& each : sink) {
      std::vector<const void*> weights;
      for (const at::Tensor& weight : each.weights) {
        weights.push_back(weight.unsafeGetTensorImpl());
      }
      const Key key = {std::move(weights), each.function, each.settings};
      const auto [place, is_new] =
          places.try_emplace({key, times[key]++}, groups.size());
      if (is_new) groups.emplace_back();
      groups[place->second].push_back(std::move(each));
    }
  }
  return groups;
}

// Computes group by group, and hands over a weight's gradient after the last
// that has a part in it.
void ComputeAndAccumulate(std::vector<Group> groups) {
  struct Pending {
    int parts = 0;
    Sum sum;
  };
  std::map<const void*, Pending> pending;
  const auto pending_of = [&pending](const at::Tensor& weight) -> Pending& {
    return pending[weight.unsafeGetTensorImpl()];
  };
  for (const Group& group : groups) {
    for (const at::Tensor& weight : group.front().weights) {
      ++pending_of(weight).parts;
    }
  }
  for (Group& each : groups) {
    Group group = std::move(each);  // goes when it is done
    std::vector<at::Tensor> gradients = Compute(group);
    const std::vector<at::Tensor>& weights = group.front().weights;
    for (size_t i = 0; i < weights.size(); ++i) {
      Pending& of_weight = pending_of(weights[i]);
      of_weight.sum.Add(std::exchange(gradients[i], at::Tensor()));
      if (--of_weight.parts == 0) {
        Accumulate(weights[i], of_weight.sum.Take());
      }
    }
  }
}

absl::Status FlushAll(std::vector<std::vector<DeferredGradients>> sinks) {
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    ComputeAndAccumulate(GroupByWeights(std::move(sinks)));
  });
}

}  // namespace

bool WeightGradientSink::MayDefer(const at::Tensor& weight) {
  return !at::GradMode::is_enabled() && weight.is_leaf() &&
         weight.requires_grad();
}

void WeightGradientSink::Defer(DeferredGradients gradients) {
  for (at::Tensor& each : gradients.weights) each = LeafParameter(each);
  absl::MutexLock lock(&mutex_);
  deferred_.push_back(std::move(gradients));
}

void WeightGradientSink::Defer(at::Tensor weight,
                               std::function<at::Tensor()> compute) {
  DeferredGradients gradients;
  gradients.weights = {std::move(weight)};
  gradients.compute = [compute = std::move(compute)] {
    return std::vector<at::Tensor>{compute()};
  };
  Defer(std::move(gradients));
}

std::vector<DeferredGradients> WeightGradientSink::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(deferred_, {});
}

absl::Status WeightGradientSink::Flush() {
  std::vector<std::vector<DeferredGradients>> all;
  all.push_back(Take());
  return FlushAll(std::move(all));
}

absl::Status WeightGradientSink::FlushTogether(
    absl::Span<const std::shared_ptr<WeightGradientSink>> sinks) {
  std::vector<std::vector<DeferredGradients>> all;
  for (const auto& sink : sinks) all.push_back(sink->Take());
  return FlushAll(std::move(all));
}

std::vector<at::Tensor> WeightGradientSink::weights() const {
  absl::MutexLock lock(&mutex_);
  std::vector<at::Tensor> all;
  for (const DeferredGradients& each : deferred_) {
    all.insert(all.end(), each.weights.begin(), each.weights.end());
  }
  return all;
}

}  // namespace tandem
