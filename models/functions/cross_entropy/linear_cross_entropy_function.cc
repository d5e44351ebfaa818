#include "models/functions/cross_entropy/linear_cross_entropy_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/fused/cross_entropy.h"
#include "core/model/gradient_place.h"
#include "core/precision/low_precision_copy.h"
#include "models/functions/linear_function.h"
#include "models/functions/matrix_product.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

// Float or wider, unless the fused kernels take them as they are.
at::Tensor ComputeLogits(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor logits = MatrixProduct(x, weight.t());
  const bool stays =
      IsForFusedKernels(logits) || logits.scalar_type() == at::kDouble;
  return stays ? logits : logits.to(at::kFloat);
}

// Adds a^T b.
void AddProduct(const at::Tensor& a, const at::Tensor& b, at::Tensor& sum) {
  if (a.scalar_type() == sum.scalar_type()) {
    sum.addmm_(a.t(), b);
  } else {
    sum.add_(MatrixProductIn(sum.scalar_type(), a.t(), b));
  }
}

using Visitor = absl::FunctionRef<void(const RowChunk&, const at::Tensor&)>;

// `factor`: the weight, of x's dtype.
void Visit(const at::Tensor& x, const at::Tensor& factor, int64_t chunk,
           Visitor visit) {
  for (int64_t first = 0; first == 0 || first < x.size(0); first += chunk) {
    const RowChunk rows = {first, std::min(chunk, x.size(0) - first)};
    visit(rows, ComputeLogits(rows.Of(x), factor));
  }
}

}  // namespace

void ForEachLogits(const at::Tensor& x, const at::Tensor& weight, int64_t chunk,
                   Visitor visit) {
  const at::NoGradGuard no_grad;  // MatrixProduct asks
  Visit(x, LowPrecisionCopy(weight, x.scalar_type()), chunk, visit);
}

LinearGradients LogitGradients(
    const at::Tensor& x, const at::Tensor& weight, int64_t chunk, bool wants_x,
    bool wants_weight,
    absl::FunctionRef<at::Tensor(const RowChunk&, const at::Tensor&)>
        gradient) {
  const at::NoGradGuard no_grad;  // LowPrecisionCopy asks
  LinearGradients gradients;
  if (wants_x) gradients.x = at::empty_like(x);
  const at::Tensor factor = LowPrecisionCopy(weight, x.scalar_type());
  // `sum`: zeros, to which the weight's is added.
  const auto visit = [&](at::Tensor sum) {
    Visit(
        x, factor, chunk, [&](const RowChunk& rows, const at::Tensor& logits) {
          const at::Tensor dlogits = gradient(rows, logits).to(x.scalar_type());
          if (wants_x) {
            rows.Of(gradients.x).copy_(MatrixProduct(dlogits, factor));
          }
          if (wants_weight) AddProduct(dlogits, rows.Of(x), sum);
        });
  };
  const auto put = [&](const at::Tensor& place) { visit(place.zero_()); };
  if (wants_weight && GradientPlace::Put(weight, put)) return gradients;
  if (wants_weight) gradients.weight = at::zeros_like(weight);
  visit(gradients.weight);
  return gradients;
}

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

struct Rows {
  at::Tensor losses, log_sums, right;
};

Rows LossRows(const at::Tensor& logits, const at::Tensor& targets,
              std::optional<int64_t> ignored) {
  if (IsForFusedKernels(logits)) {
    auto [losses, log_sums, right] =
        FusedCrossEntropy(logits, targets, ignored);
    return {losses, log_sums, right};
  }
  const CrossEntropyResult result =
      CrossEntropyFunction(logits, targets, ignored);
  return {result.losses, at::logsumexp(logits, 1), result.right};
}

at::Tensor LogitsGradient(const at::Tensor& dlosses, const at::Tensor& logits,
                          const at::Tensor& targets, const at::Tensor& log_sums,
                          std::optional<int64_t> ignored) {
  if (IsForFusedKernels(logits)) {
    return FusedCrossEntropyBackward(dlosses, logits, targets, log_sums,
                                     ignored);
  }
  at::Tensor labels = targets;
  at::Tensor d = dlosses;
  if (ignored) {
    const at::Tensor is_ignored = targets.eq(*ignored);
    labels = targets.masked_fill(is_ignored, 0);
    d = dlosses.masked_fill(is_ignored, 0);
  }
  at::Tensor gradient = logits.sub(log_sums.unsqueeze(1)).exp_();
  const at::Tensor hits =
      at::zeros_like(gradient).scatter_(1, labels.unsqueeze(1), /*value=*/1);
  return gradient.sub_(hits).mul_(d.unsqueeze(1));
}

class LinearCrossEntropyBackward : public torch::autograd::Node {
 public:
  LinearCrossEntropyBackward(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& targets,
                             const at::Tensor& log_sums,
                             std::optional<int64_t> ignored, int64_t chunk)
      : x_(x, /*is_output=*/false),
        weight_(weight, /*is_output=*/false),
        targets_(targets),
        log_sums_(log_sums),
        ignored_(ignored),
        chunk_(chunk) {}

  std::string name() const override { return "LinearCrossEntropyBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor& dlosses = gradients[0];
    if (!dlosses.defined()) return variable_list(2);
    const at::Tensor x = x_.unpack(getptr());
    const at::Tensor weight = weight_.unpack(getptr());
    if (at::GradMode::is_enabled()) return Differentiable(dlosses, x, weight);
    return InChunks(dlosses, x, weight);
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    weight_.reset_data();
    log_sums_.reset();
  }

 private:
  variable_list InChunks(const at::Tensor& dlosses, const at::Tensor& x,
                         const at::Tensor& weight) const {
    const LinearGradients gradients = LogitGradients(
        x, weight, chunk_, task_should_compute_output(0),
        task_should_compute_output(1),
        [&](const RowChunk& chunk, const at::Tensor& logits) {
          return LogitsGradient(chunk.Of(dlosses), logits, chunk.Of(targets_),
                                chunk.Of(log_sums_), ignored_);
        });
    return {gradients.x, gradients.weight};
  }

  variable_list Differentiable(const at::Tensor& dlosses, const at::Tensor& x,
                               const at::Tensor& weight) const {
    const at::Tensor logits =
        LinearFunction(x, weight, /*bias=*/{}, WeightLayout::kOutIn);
    return torch::autograd::grad(
        {CrossEntropyFunction(logits, targets_, ignored_).losses}, {x, weight},
        {dlosses}, /*retain_graph=*/true, /*create_graph=*/true,
        /*allow_unused=*/true);
  }

  SavedVariable x_;
  SavedVariable weight_;
  at::Tensor targets_;
  at::Tensor log_sums_;
  const std::optional<int64_t> ignored_;
  const int64_t chunk_;
};

Rows InChunks(const at::Tensor& x, const at::Tensor& weight,
              const at::Tensor& targets, std::optional<int64_t> ignored,
              int64_t chunk) {
  std::vector<at::Tensor> losses, log_sums, right;
  ForEachLogits(x, weight, chunk,
                [&](const RowChunk& rows, const at::Tensor& logits) {
                  const Rows part = LossRows(logits, rows.Of(targets), ignored);
                  losses.push_back(part.losses);
                  log_sums.push_back(part.log_sums);
                  right.push_back(part.right);
                });
  return {at::cat(losses), at::cat(log_sums), at::cat(right)};
}

}  // namespace

CrossEntropyResult LinearCrossEntropyFunction(const at::Tensor& x,
                                              const at::Tensor& weight,
                                              const at::Tensor& targets,
                                              std::optional<int64_t> ignored,
                                              int64_t chunk) {
  TORCH_CHECK(
      x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1) &&
          targets.dim() == 1 && targets.size(0) == x.size(0) && chunk >= 1,
      "linear cross entropy of ", x.sizes(), " by a weight ", weight.sizes(),
      " with targets ", targets.sizes(), " in chunks of ", chunk,
      " rows: expected [n, width], [classes, width], [n] and 1 or more");
  Rows rows;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    rows = InChunks(x, weight, targets, ignored, chunk);
  }
  if (torch::autograd::compute_requires_grad(x, weight)) {
    const auto node = c10::make_intrusive<LinearCrossEntropyBackward>(
        x, weight, targets, rows.log_sums, ignored, chunk);
    node->set_next_edges(torch::autograd::collect_next_edges(x, weight));
    torch::autograd::set_history(rows.losses, node);
  }
  return {rows.losses, rows.right};
}

}  // namespace tandem
