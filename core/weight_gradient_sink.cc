#include "core/weight_gradient_sink.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "core/torch_status.h"

namespace tandem {
namespace {

thread_local std::shared_ptr<WeightGradientSink> current;

// A backward that begins at the accumulator of the weight, so that its hooks
// run.
void Accumulate(const at::Tensor& weight, const at::Tensor& gradient) {
  torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::Edge(torch::autograd::impl::grad_accumulator(weight),
                             0)},
      {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
}

}  // namespace

WeightGradientSink::Scope::Scope(std::shared_ptr<WeightGradientSink> sink)
    : outer_(std::move(current)) {
  current = std::move(sink);
}

WeightGradientSink::Scope::~Scope() { current = std::move(outer_); }

std::shared_ptr<WeightGradientSink> WeightGradientSink::Current() {
  return current;
}

bool WeightGradientSink::MayDefer(const at::Tensor& weight) {
  return !at::GradMode::is_enabled() && weight.is_leaf() &&
         weight.requires_grad();
}

void WeightGradientSink::Defer(at::Tensor weight,
                               std::function<at::Tensor()> compute) {
  absl::MutexLock lock(&mutex_);
  deferred_.push_back({std::move(weight), std::move(compute)});
}

absl::Status WeightGradientSink::Flush() {
  std::vector<Deferred> all;
  {
    absl::MutexLock lock(&mutex_);
    all.swap(deferred_);
  }
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    for (Deferred& each : all) {
      Accumulate(each.weight, each.compute());
      each.compute = nullptr;  // what it holds is of no use any more
    }
  });
}

size_t WeightGradientSink::size() const {
  absl::MutexLock lock(&mutex_);
  return deferred_.size();
}

}  // namespace tandem
