#include "models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/fused/cross_entropy.h"
#include "models/functions/cross_entropy/linear_cross_entropy_function.h"
#include "models/functions/linear_function.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

at::Tensor Wide(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

// Where targets lie in a part of so many classes.
struct Places {
  Places(const at::Tensor& targets, int64_t first_class, int64_t classes)
      : inside(targets.ge(first_class)
                   .logical_and(targets.lt(first_class + classes))),
        index(targets.sub(first_class)
                  .masked_fill(inside.logical_not(), 0)
                  .unsqueeze(1)) {}

  at::Tensor inside;  // [n]
  at::Tensor index;   // [n, 1], 0 of those that lie elsewhere
};

at::Tensor TargetLogits(const at::Tensor& logits, const Places& places) {
  return logits.gather(1, places.index)
      .squeeze(1)
      .masked_fill(places.inside.logical_not(), 0);
}

at::Tensor PartNumbers(const at::Tensor& logits, const at::Tensor& targets,
                       int64_t first_class) {
  const Places places(targets, first_class, logits.size(1));
  const auto [greatest, arg] = logits.max(1);
  const at::Tensor hits =
      arg.eq(places.index.squeeze(1)).logical_and(places.inside);
  return at::stack(
      {at::logsumexp(logits, 1), TargetLogits(logits, places), greatest,
       hits.to(logits.scalar_type()), places.inside.to(logits.scalar_type())},
      1);
}

// The same in one pass over float or bf16 in the host's memory, and one for the
// greatest.
at::Tensor FusedPartNumbers(const at::Tensor& logits, const at::Tensor& targets,
                            int64_t first_class) {
  const Places places(targets, first_class, logits.size(1));
  const auto [losses, log_sums, right] =
      FusedCrossEntropy(logits, places.index.squeeze(1), std::nullopt);
  return at::stack({log_sums, TargetLogits(logits, places).to(at::kFloat),
                    logits.amax(1).to(at::kFloat),
                    right.logical_and(places.inside).to(at::kFloat),
                    places.inside.to(at::kFloat)},
                   1);
}

// The gradient of the logits of `dnumbers`, given the logarithms of the part's
// sums.
at::Tensor PartGradient(const at::Tensor& dnumbers, const at::Tensor& logits,
                        const at::Tensor& targets, const at::Tensor& log_sums,
                        int64_t first_class) {
  const Places places(targets, first_class, logits.size(1));
  const at::Tensor of_targets =
      dnumbers.select(1, 1).masked_fill(places.inside.logical_not(), 0);
  return logits.sub(log_sums.unsqueeze(1))
      .exp_()
      .mul_(dnumbers.select(1, 0).unsqueeze(1))
      .scatter_add_(1, places.index, of_targets.unsqueeze(1));
}

// The kernel's is that of log_sum - logit, whose second half is taken back.
at::Tensor FusedPartGradient(const at::Tensor& dnumbers,
                             const at::Tensor& logits,
                             const at::Tensor& targets,
                             const at::Tensor& log_sums, int64_t first_class) {
  const Places places(targets, first_class, logits.size(1));
  const at::Tensor of_sums = dnumbers.select(1, 0).contiguous();
  const at::Tensor of_targets =
      dnumbers.select(1, 1).masked_fill(places.inside.logical_not(), 0);
  return FusedCrossEntropyBackward(of_sums, logits, places.index.squeeze(1),
                                   log_sums, std::nullopt)
      .scatter_add_(
          1, places.index,
          (of_sums + of_targets).unsqueeze(1).to(logits.scalar_type()));
}

// The same by operators that autograd differentiates again.
variable_list DifferentiablePart(const at::Tensor& logits,
                                 const at::Tensor& dnumbers,
                                 const at::Tensor& targets, int64_t first_class,
                                 const variable_list& inputs) {
  const at::Tensor wide = Wide(logits);
  const Places places(targets, first_class, wide.size(1));
  return torch::autograd::grad(
      {at::logsumexp(wide, 1), TargetLogits(wide, places)}, inputs,
      {dnumbers.select(1, 0), dnumbers.select(1, 1)}, /*retain_graph=*/true,
      /*create_graph=*/true, /*allow_unused=*/true);
}

class VocabPartOfLogitsBackward : public torch::autograd::Node {
 public:
  VocabPartOfLogitsBackward(const at::Tensor& logits, const at::Tensor& targets,
                            const at::Tensor& log_sums, int64_t first_class)
      : logits_(logits, /*is_output=*/false),
        targets_(targets),
        log_sums_(log_sums),
        first_class_(first_class) {}

  std::string name() const override { return "VocabPartOfLogitsBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor& dnumbers = gradients[0];
    if (!dnumbers.defined()) return variable_list(1);
    const at::Tensor logits = logits_.unpack(getptr());
    if (at::GradMode::is_enabled()) {
      return DifferentiablePart(logits, dnumbers, targets_, first_class_,
                                {logits});
    }
    if (IsForFusedKernels(logits)) {
      return {FusedPartGradient(dnumbers, logits, targets_, log_sums_,
                                first_class_)};
    }
    return {
        PartGradient(dnumbers, Wide(logits), targets_, log_sums_, first_class_)
            .to(logits.scalar_type())};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    logits_.reset_data();
    log_sums_.reset();
  }

 private:
  SavedVariable logits_;
  at::Tensor targets_;
  at::Tensor log_sums_;
  const int64_t first_class_;
};

class VocabPartBackward : public torch::autograd::Node {
 public:
  VocabPartBackward(const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& targets, const at::Tensor& log_sums,
                    int64_t first_class, int64_t chunk)
      : x_(x, /*is_output=*/false),
        weight_(weight, /*is_output=*/false),
        targets_(targets),
        log_sums_(log_sums),
        first_class_(first_class),
        chunk_(chunk) {}

  std::string name() const override { return "VocabPartBackward"; }

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor& dnumbers = gradients[0];
    if (!dnumbers.defined()) return variable_list(2);
    const at::Tensor x = x_.unpack(getptr());
    const at::Tensor weight = weight_.unpack(getptr());
    if (at::GradMode::is_enabled()) return Differentiable(dnumbers, x, weight);
    const LinearGradients found =
        LogitGradients(x, weight, chunk_, task_should_compute_output(0),
                       task_should_compute_output(1),
                       [&](const RowChunk& chunk, const at::Tensor& logits) {
                         return PartGradient(chunk.Of(dnumbers), Wide(logits),
                                             chunk.Of(targets_),
                                             chunk.Of(log_sums_), first_class_);
                       });
    return {found.x, found.weight};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    weight_.reset_data();
    log_sums_.reset();
  }

 private:
  variable_list Differentiable(const at::Tensor& dnumbers, const at::Tensor& x,
                               const at::Tensor& weight) const {
    return DifferentiablePart(
        LinearFunction(x, weight, /*bias=*/{}, WeightLayout::kOutIn), dnumbers,
        targets_, first_class_, {x, weight});
  }

  SavedVariable x_;
  SavedVariable weight_;
  at::Tensor targets_;
  at::Tensor log_sums_;
  const int64_t first_class_;
  const int64_t chunk_;
};

// A target that is no class: an error, or where the host would have to wait
// for the device to know of it, a loss that is no number.
at::Tensor Checked(const at::Tensor& losses, const at::Tensor& targets,
                   const at::Tensor& is_none) {
  if (!is_none.is_cpu()) {
    return losses.masked_fill(is_none,
                              std::numeric_limits<double>::quiet_NaN());
  }
  TORCH_CHECK_INDEX(!is_none.any().item<bool>(), "Target ",
                    targets.masked_select(is_none)[0].item<int64_t>(),
                    " is out of bounds.");
  return losses;
}

}  // namespace

at::Tensor VocabPartFunction(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& targets, int64_t first_class,
                             int64_t chunk) {
  TORCH_CHECK(
      x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1) &&
          weight.size(0) >= 1 && targets.dim() == 1 &&
          targets.size(0) == x.size(0) && chunk >= 1,
      "a part of the vocabulary: cross entropy of ", x.sizes(), " by a weight ",
      weight.sizes(), " with targets ", targets.sizes(), " in chunks of ",
      chunk, " rows: expected [n, width], [classes, width], [n] and 1 or more");
  at::Tensor numbers;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::vector<at::Tensor> parts;
    ForEachLogits(
        x, weight, chunk, [&](const RowChunk& rows, const at::Tensor& logits) {
          parts.push_back(
              PartNumbers(Wide(logits), rows.Of(targets), first_class));
        });
    numbers = at::cat(parts);
  }
  if (torch::autograd::compute_requires_grad(x, weight)) {
    const auto node = c10::make_intrusive<VocabPartBackward>(
        x, weight, targets, numbers.select(1, 0).clone(), first_class, chunk);
    node->set_next_edges(torch::autograd::collect_next_edges(x, weight));
    torch::autograd::set_history(numbers, node);
  }
  return numbers;
}

at::Tensor VocabPartOfLogits(const at::Tensor& logits,
                             const at::Tensor& targets, int64_t first_class) {
  TORCH_CHECK(logits.dim() == 2 && logits.size(1) >= 1 && targets.dim() == 1 &&
                  targets.size(0) == logits.size(0),
              "a part of the vocabulary: cross entropy of logits ",
              logits.sizes(), " with targets ", targets.sizes(),
              ": expected [n, classes] and [n]");
  at::Tensor numbers;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    numbers = IsForFusedKernels(logits)
                  ? FusedPartNumbers(logits, targets, first_class)
                  : PartNumbers(Wide(logits), targets, first_class);
  }
  if (torch::autograd::compute_requires_grad(logits)) {
    const auto node = c10::make_intrusive<VocabPartOfLogitsBackward>(
        logits, targets, numbers.select(1, 0).clone(), first_class);
    node->set_next_edges(torch::autograd::collect_next_edges(logits));
    torch::autograd::set_history(numbers, node);
  }
  return numbers;
}

at::Tensor JoinVocabParts(const at::Tensor& before, const at::Tensor& part) {
  at::Tensor greatest, hits, found;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor is_greater = part.select(1, 2).gt(before.select(1, 2));
    greatest = at::where(is_greater, part.select(1, 2), before.select(1, 2));
    hits = at::where(is_greater, part.select(1, 3), before.select(1, 3));
    found = before.select(1, 4) + part.select(1, 4);
  }
  return at::stack(
      {at::logaddexp(before.select(1, 0), part.select(1, 0)),
       before.select(1, 1) + part.select(1, 1), greatest, hits, found},
      1);
}

at::Tensor JoinVocabPartsOverAxis(const at::Tensor& part,
                                  const AxisGroupPtr& group) {
  const at::Tensor all =
      GatherFromAxis(part, 0, group, "losses of parts of the vocabulary");
  const int64_t rows = part.size(0);
  at::Tensor joined = all.narrow(0, 0, rows);
  for (int64_t i = 1; i < group->degree(); ++i) {
    joined = JoinVocabParts(joined, all.narrow(0, i * rows, rows));
  }
  return joined;
}

CrossEntropyResult CrossEntropyOfVocabParts(const at::Tensor& parts,
                                            const at::Tensor& targets,
                                            std::optional<int64_t> ignored) {
  at::Tensor losses = parts.select(1, 0) - parts.select(1, 1);
  at::Tensor right = parts.select(1, 3).detach().gt(0);
  at::Tensor is_none = parts.select(1, 4).detach().eq(0);
  if (ignored) {
    const at::Tensor is_ignored = targets.eq(*ignored);
    losses = losses.masked_fill(is_ignored, 0);
    right = right.logical_and(is_ignored.logical_not());
    is_none = is_none.logical_and(is_ignored.logical_not());
  }
  return {Checked(losses, targets, is_none), right};
}

}  // namespace tandem
