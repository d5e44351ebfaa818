#include "core/fused/cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "core/fused/element.h"
#include "core/fused/exponential.h"
#include "core/fused/find_operator.h"
#include "core/fused/lanes.h"
#include "core/fused/row_blocks.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

// Out of range, so that no row has it.
constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

template <typename T>
TANDEM_INLINE float GreatestLogit(const T* x, int64_t n) {
  Lanes lanes = Lanes{} - std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes next;
    LoadLanes(x + i, next);
    lanes = next > lanes ? next : lanes;
  }
  float greatest = -std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < kLanes; ++k) {
    greatest = lanes[k] > greatest ? lanes[k] : greatest;
  }
  for (; i < n; ++i) {
    greatest = Widen(x[i]) > greatest ? Widen(x[i]) : greatest;
  }
  return greatest;
}

// Is x[target] the first of the greatest? A NaN is greater than all.
template <typename T>
TANDEM_INLINE bool IsFirstGreatest(const T* x, int64_t target, int64_t n,
                                   float greatest, bool any_nan) {
  const auto is_greatest = [&](int64_t i) TANDEM_INLINE_LAMBDA {
    return any_nan ? std::isnan(Widen(x[i])) : Widen(x[i]) == greatest;
  };
  if (target >= n || !is_greatest(target)) return false;
  for (int64_t i = 0; i < target; ++i) {
    if (is_greatest(i)) return false;
  }
  return true;
}

template <typename T>
struct Forward {
  static TANDEM_INLINE void Body(float* losses, float* log_sums, bool* right,
                                 float* row, const T* x, const int64_t* targets,
                                 int64_t rows, int64_t n, int64_t ignored) {
    for (int64_t r = 0; r < rows; ++r, x += n) {
      const float greatest = GreatestLogit(x, n);
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) {
        row[i] = Exponential(Widen(x[i]) - greatest);
      }
      const float sum = SumOfTerms(
          row, n, [](const auto& v) TANDEM_INLINE_LAMBDA { return v; });
      const float log_sum = std::log(sum);
      log_sums[r] = greatest + log_sum;
      const bool counts = targets[r] != ignored;
      losses[r] = counts ? log_sum - (Widen(x[targets[r]]) - greatest) : 0;
      right[r] = counts && IsFirstGreatest(x, targets[r], n, greatest,
                                           std::isnan(log_sum));
    }
  }
};

template <typename T>
struct Backward {
  static TANDEM_INLINE void Body(T* dx, const float* dlosses, const T* x,
                                 const int64_t* targets, const float* log_sums,
                                 int64_t rows, int64_t n, int64_t ignored) {
    for (int64_t r = 0; r < rows; ++r, x += n, dx += n) {
      const bool counts = targets[r] != ignored;
      const float d = counts ? dlosses[r] : 0;
      const float log_sum = log_sums[r];
      TANDEM_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) {
        dx[i] = Narrow<T>(Exponential(Widen(x[i]) - log_sum) * d);
      }
      if (!counts) continue;
      const int64_t target = targets[r];
      dx[target] = Narrow<T>((Exponential(Widen(x[target]) - log_sum) - 1) * d);
    }
  }
};

void Check(const at::Tensor& logits, const at::Tensor& targets,
           int64_t ignored) {
  TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1 &&
                  logits.size(0) == targets.size(0) &&
                  targets.scalar_type() == at::kLong,
              "cross_entropy of logits ", logits.sizes(), " and ",
              targets.scalar_type(), " targets ", targets.sizes(),
              ": expected [n, classes] and int64 [n]");
  const auto* target = targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.size(0); ++i) {
    TORCH_CHECK_INDEX(
        target[i] == ignored || (target[i] >= 0 && target[i] < logits.size(1)),
        "Target ", target[i], " is out of bounds.");
  }
}

// What both passes are given: checked, and contiguous.
struct Arguments {
  Arguments(const at::Tensor& logits, const at::Tensor& targets,
            std::optional<int64_t> ignored)
      : x(logits.contiguous()),
        labels(targets.contiguous()),
        ignore(ignored.value_or(kNone)) {
    Check(x, labels, ignore);
    shape = {x.size(0), x.size(1)};
  }

  at::Tensor x;
  at::Tensor labels;
  int64_t ignore;
  RowShape shape;
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> ForwardOnCpu(
    const at::Tensor& logits, const at::Tensor& targets,
    std::optional<int64_t> ignored) {
  const Arguments arguments(logits, targets, ignored);
  const at::Tensor& x = arguments.x;
  const RowShape& shape = arguments.shape;
  const at::Tensor losses =
      at::empty({shape.rows}, x.options().dtype(at::kFloat));
  const at::Tensor log_sums = at::empty_like(losses);
  const at::Tensor right = at::empty_like(losses, at::kBool);
  WithElementType("cross_entropy", x.scalar_type(), [&](auto element) {
    using T = decltype(element);
    static const auto run =
        Choose<Forward<T>, float*, float*, bool*, float*, const T*,
               const int64_t*, int64_t, int64_t, int64_t>();
    auto* loss = losses.mutable_data_ptr<float>();
    auto* log_sum = log_sums.mutable_data_ptr<float>();
    auto* is_right = right.mutable_data_ptr<bool>();
    const auto* from = x.const_data_ptr<T>();
    const auto* target = arguments.labels.const_data_ptr<int64_t>();
    ForRowBlocks(shape, [&](int64_t begin, int64_t end) {
      const at::Tensor row = at::empty({shape.columns}, at::kFloat);
      run(loss + begin, log_sum + begin, is_right + begin,
          row.mutable_data_ptr<float>(), from + begin * shape.columns,
          target + begin, end - begin, shape.columns, arguments.ignore);
    });
  });
  return {losses, log_sums, right};
}

at::Tensor BackwardOnCpu(const at::Tensor& dlosses, const at::Tensor& logits,
                         const at::Tensor& targets, const at::Tensor& log_sums,
                         std::optional<int64_t> ignored) {
  const Arguments arguments(logits, targets, ignored);
  const at::Tensor& x = arguments.x;
  const RowShape& shape = arguments.shape;
  TORCH_CHECK(dlosses.numel() == shape.rows &&
                  dlosses.scalar_type() == at::kFloat &&
                  log_sums.numel() == shape.rows,
              "cross_entropy_backward of ", dlosses.scalar_type(),
              dlosses.sizes(), " for logits ", logits.sizes());
  const at::Tensor gradient = dlosses.contiguous();
  const at::Tensor dx = at::empty_like(x);
  WithElementType("cross_entropy", x.scalar_type(), [&](auto element) {
    using T = decltype(element);
    static const auto run =
        Choose<Backward<T>, T*, const float*, const T*, const int64_t*,
               const float*, int64_t, int64_t, int64_t>();
    auto* to = dx.mutable_data_ptr<T>();
    const auto* d = gradient.const_data_ptr<float>();
    const auto* from = x.const_data_ptr<T>();
    const auto* target = arguments.labels.const_data_ptr<int64_t>();
    const auto* log_sum = log_sums.const_data_ptr<float>();
    ForRowBlocks(shape, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * shape.columns;
      run(to + at, d + begin, from + at, target + begin, log_sum + begin,
          end - begin, shape.columns, arguments.ignore);
    });
  });
  return dx;
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "cross_entropy(Tensor logits, Tensor targets, int? ignored) -> "
      "(Tensor, Tensor, Tensor)");
  library.def(
      "cross_entropy_backward(Tensor dlosses, Tensor logits, Tensor targets, "
      "Tensor log_sums, int? ignored) -> Tensor");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("cross_entropy", ForwardOnCpu);
  library.impl("cross_entropy_backward", BackwardOnCpu);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> FusedCrossEntropy(
    const at::Tensor& logits, const at::Tensor& targets,
    std::optional<int64_t> ignored) {
  static const auto op =
      FindOperator<decltype(ForwardOnCpu)>("tandem::cross_entropy");
  return op.call(logits, targets, ignored);
}

at::Tensor FusedCrossEntropyBackward(const at::Tensor& dlosses,
                                     const at::Tensor& logits,
                                     const at::Tensor& targets,
                                     const at::Tensor& log_sums,
                                     std::optional<int64_t> ignored) {
  static const auto op =
      FindOperator<decltype(BackwardOnCpu)>("tandem::cross_entropy_backward");
  return op.call(dlosses, logits, targets, log_sums, ignored);
}

}  // namespace tandem
