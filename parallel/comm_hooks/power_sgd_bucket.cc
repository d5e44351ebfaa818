#include "parallel/comm_hooks/power_sgd_bucket.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_buffer.h"
#include "core/random/random.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

// What is left of a column that depends on others, relative to its norm: a few
// rounding errors of double. Those of float are far above it and count as a
// direction, which costs nothing: the gradient has next to nothing along it.
constexpr double kDependent = 1e-13;

// Four sums, so that one addition need not wait for the last.
double Dot(const double* a, const double* b, int64_t n) {
  double sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void Scale(double factor, double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] *= factor;
}

// a -= factor * b
void Subtract(double factor, const double* b, double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] -= factor * b[i];
}

// Makes vector `k` of `vectors`, each of n, a unit vector orthogonal to those
// before it. Returns the length of what was left of it; 0: nothing.
double MakeOrthonormal(double* vectors, int64_t k, int64_t n) {
  double* const mine = vectors + k * n;
  const double before = std::sqrt(Dot(mine, mine, n));
  double left = before;
  for (int pass = 0; pass < 2 && k > 0; ++pass) {
    for (int64_t j = 0; j < k; ++j) {
      const double* const other = vectors + j * n;
      Subtract(Dot(other, mine, n), other, mine, n);
    }
    left = std::sqrt(Dot(mine, mine, n));
    // Not for NaNs.
    if (left <= kDependent * before) left = 0;
  }
  Scale(left == 0 ? 0 : 1 / left, mine, n);
  return left;
}

// Makes rows in the host's memory orthonormal. Returns the lengths of what was
// left of them.
at::Tensor MakeRowsOrthonormal(const at::Tensor& rows) {
  const at::Tensor lengths = at::empty({rows.size(0)}, at::kDouble);
  for (int64_t k = 0; k < rows.size(0); ++k) {
    lengths.mutable_data_ptr<double>()[k] =
        MakeOrthonormal(rows.mutable_data_ptr<double>(), k, rows.size(1));
  }
  return lengths;
}

// The same by operators, which leave to the device what is zero. A pass
// projects on all rows before at once: the second one makes up for that.
at::Tensor MakeRowsOrthonormalOnDevice(const at::Tensor& rows) {
  std::vector<at::Tensor> lengths;
  for (int64_t k = 0; k < rows.size(0); ++k) {
    const at::Tensor mine = rows.select(0, k);
    const at::Tensor others = rows.narrow(0, 0, k);
    const at::Tensor before = mine.norm();
    for (int pass = 0; pass < 2 && k > 0; ++pass) {
      mine.sub_(at::mv(others.t(), at::mv(others, mine)));
    }
    const at::Tensor left = mine.norm();
    const at::Tensor is_zero =
        k == 0 ? left.eq(0) : left.le(before * kDependent);
    lengths.push_back(left.masked_fill(is_zero, 0));
    mine.div_(left.masked_fill(is_zero, 1)).masked_fill_(is_zero, 0);
  }
  return at::stack(lengths);
}

// Columns that are as good as random, from the device: of waves whose lengths
// have no ratio, others in each iteration. The same on every rank.
at::Tensor WavesLike(const at::Tensor& q, int64_t iter) {
  const at::TensorOptions options = q.options().dtype(at::kDouble);
  const at::Tensor rows = at::arange(1, q.size(0) + 1, options).unsqueeze(1);
  const at::Tensor columns = at::arange(1, q.size(1) + 1, options);
  return (rows * (columns + 0.1 * static_cast<double>(iter % 97)).sqrt())
      .sin()
      .to(q.scalar_type());
}

// A column of zeros would stay one for ever: it is replaced, on the CPU by a
// random one. Elsewhere the host does not ask whether there is any.
void OrthogonalizeQ(const LowRankGradient& each, const PowerSgdOptions& options,
                    int64_t iter) {
  const double epsilon = options.orthogonalization_epsilon;
  const at::Tensor zero = Orthogonalize(each.q, epsilon);
  const bool is_host = each.q.is_cpu();
  if (is_host && !zero.any().item<bool>()) return;
  const at::Tensor known = each.q.clone();
  if (is_host) {
    RandomizeQ(each, options, iter);
  } else {
    each.q.copy_(WavesLike(each.q, iter));
  }
  each.q.copy_(at::where(zero, each.q, known));
  Orthogonalize(each.q, epsilon);
  if (!is_host) each.q.copy_(at::where(zero.any(), each.q, known));
}

// What is lost is the error, unless `finite`, a bool on the device, is false:
// then Q and the error start afresh.
void StartAfreshUnless(const at::Tensor& finite, const LowRankGradient& each,
                       int64_t iter) {
  each.q.copy_(at::where(finite, each.q, WavesLike(each.q, iter)));
  if (each.error.defined()) {
    each.error.sub_(each.gradient).masked_fill_(finite.logical_not(), 0);
  }
}

struct MatrixShape {
  int64_t rows, columns, rank;

  int64_t numel() const { return rows * columns; }
  int64_t compressed() const { return (rows + columns) * rank; }
};

// The dimension that is outermost in memory by all others: the first, unless
// the parameter is a transposed one.
MatrixShape CompressedShape(const at::Tensor& gradient, int64_t max_rank) {
  if (gradient.dim() == 0 || gradient.numel() == 0) {
    return {gradient.numel(), 1, 0};
  }
  int64_t outermost = 0;
  for (int64_t d = 1; d < gradient.dim(); ++d) {
    if (gradient.stride(d) > gradient.stride(outermost)) outermost = d;
  }
  const int64_t rows = gradient.size(outermost);
  const int64_t columns = gradient.numel() / rows;
  return {rows, columns, std::min({rows, columns, max_rank})};
}

bool Compresses(const MatrixShape& shape, double min_rate) {
  return shape.rank > 0 && static_cast<double>(shape.compressed()) * min_rate <
                               static_cast<double>(shape.numel());
}

// [numel], what `view` covers of its storage.
at::Tensor Flat(const at::Tensor& view) {
  CHECK(view.is_non_overlapping_and_dense());
  return view.as_strided({view.numel()}, {1}, view.storage_offset());
}

// Cuts one buffer into [rows, columns] matrices, one after the other.
class Cutter {
 public:
  Cutter(at::Tensor buffer) : buffer_(std::move(buffer)) {}

  at::Tensor Next(int64_t rows, int64_t columns) {
    const at::Tensor cut =
        buffer_.narrow(0, used_, rows * columns).view({rows, columns});
    used_ += AlignedLength(rows * columns, buffer_);
    return cut;
  }

 private:
  at::Tensor buffer_;
  int64_t used_ = 0;
};

// Which gradients are compressed, and into what.
struct Choice {
  std::vector<size_t> compressed;
  std::vector<MatrixShape> shapes;  // of those
  std::vector<size_t> uncompressed;
};

Choice Choose(const GradBucket& bucket, const PowerSgdOptions& options) {
  Choice choice;
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const MatrixShape shape =
        CompressedShape(bucket.gradients[i], options.matrix_approximation_rank);
    if (Compresses(shape, options.min_compression_rate)) {
      choice.compressed.push_back(i);
      choice.shapes.push_back(shape);
    } else {
      choice.uncompressed.push_back(i);
    }
  }
  return choice;
}

absl::Status MakeMemory(const GradBucket& bucket, const Choice& choice,
                        Communicator& group, PowerSgdBucket* laid_out) {
  int64_t ps = 0, qs = 0, rest = 0;
  for (const MatrixShape& shape : choice.shapes) {
    ps += AlignedLength(shape.rows * shape.rank, bucket.buffer);
    qs += AlignedLength(shape.columns * shape.rank, bucket.buffer);
  }
  for (size_t i : choice.uncompressed) rest += bucket.gradients[i].numel();
  const at::TensorOptions options = bucket.buffer.options();
  TANDEM_ASSIGN_OR_RETURN(laid_out->ps, NewGroupBuffer(group, ps, options));
  TANDEM_ASSIGN_OR_RETURN(laid_out->qs, NewGroupBuffer(group, qs, options));
  TANDEM_ASSIGN_OR_RETURN(laid_out->uncompressed_memory,
                          NewGroupBuffer(group, rest, options));
  return absl::OkStatus();
}

at::Tensor MakeError(const at::Tensor& gradient) {
  return at::zeros({gradient.numel()}, gradient.options());
}

void CutUp(const GradBucket& bucket, const PowerSgdOptions& options,
           const Choice& choice, PowerSgdBucket* laid_out) {
  Cutter ps(laid_out->ps), qs(laid_out->qs);
  for (size_t k = 0; k < choice.compressed.size(); ++k) {
    const size_t i = choice.compressed[k];
    const auto& [rows, columns, rank] = choice.shapes[k];
    const at::Tensor& gradient = bucket.gradients[i];
    LowRankGradient each;
    each.name = bucket.names[i];
    each.gradient = Flat(gradient).view({rows, columns});
    each.p = ps.Next(rows, rank);
    each.q = qs.Next(columns, rank);
    if (options.use_error_feedback) {
      const at::Tensor error = MakeError(gradient);
      each.error = error.view({rows, columns});
      each.error_view =
          error.as_strided(gradient.sizes(), gradient.strides(), 0);
    }
    laid_out->numel_before += choice.shapes[k].numel();
    laid_out->numel_after += choice.shapes[k].compressed();
    laid_out->low_rank.push_back(std::move(each));
  }
  for (size_t i : choice.uncompressed) {
    laid_out->uncompressed.push_back(Flat(bucket.gradients[i]));
    laid_out->numel_before += bucket.gradients[i].numel();
    laid_out->numel_after += bucket.gradients[i].numel();
  }
}

// Calls fn(gradient, its place in uncompressed_memory).
template <typename F>
void ForEachUncompressed(const PowerSgdBucket& bucket, F fn) {
  int64_t used = 0;
  for (const at::Tensor& gradient : bucket.uncompressed) {
    fn(gradient, bucket.uncompressed_memory.narrow(0, used, gradient.numel()));
    used += gradient.numel();
  }
}

}  // namespace

at::Tensor Orthogonalize(const at::Tensor& matrix, double epsilon) {
  at::NoGradGuard no_grad;
  CHECK_EQ(matrix.dim(), 2);
  const at::Tensor rows =
      matrix.to(at::kDouble).t().clone(at::MemoryFormat::Contiguous);
  const at::Tensor lengths = rows.is_cpu() ? MakeRowsOrthonormal(rows)
                                           : MakeRowsOrthonormalOnDevice(rows);
  if (epsilon != 0) {
    rows.mul_((lengths / (lengths + epsilon)).unsqueeze(1));
  }
  matrix.copy_(rows.t());
  return lengths.eq(0);
}

void RandomizeQ(const LowRankGradient& each, const PowerSgdOptions& options,
                int64_t iter) {
  at::Generator generator = GeneratorFor(
      options.random_seed, absl::StrCat("power_sgd/", iter, "/", each.name));
  const at::Tensor values = at::randn(each.q.sizes(), generator, at::kFloat);
  each.q.copy_(each.q.is_cpu() ? values : values.pin_memory(),
               /*non_blocking=*/true);
}

void ComputeP(const LowRankGradient& each, const PowerSgdOptions& options,
              int64_t iter) {
  if (!options.warm_start) RandomizeQ(each, options, iter);
  OrthogonalizeQ(each, options, iter);
  if (each.error.defined()) each.error.add_(each.gradient);
  at::Tensor p = each.p;
  at::mm_out(p, each.matrix(), each.q);
}

void ComputeQ(const LowRankGradient& each, const PowerSgdOptions& options) {
  Orthogonalize(each.p, options.orthogonalization_epsilon);
  at::Tensor q = each.q;
  at::mm_out(q, each.matrix().t(), each.p);
}

void Decompress(const LowRankGradient& each, const PowerSgdOptions& options,
                int64_t iter) {
  at::Tensor gradient = each.gradient;
  at::mm_out(gradient, each.p, each.q.t());
  const at::Tensor finite = at::isfinite(each.q).all();
  if (!finite.is_cpu()) return StartAfreshUnless(finite, each, iter + 1);
  if (finite.item<bool>()) {
    if (each.error.defined()) each.error.sub_(gradient);
    return;
  }
  RandomizeQ(each, options, iter + 1);
  if (each.error.defined()) each.error.zero_();
}

absl::StatusOr<PowerSgdBucket> LayOutPowerSgdBucket(
    const GradBucket& bucket, const PowerSgdOptions& options,
    Communicator& group) {
  const Choice choice = Choose(bucket, options);
  PowerSgdBucket laid_out;
  if (choice.compressed.empty()) {
    // Nothing has to be moved.
    for (const at::Tensor& gradient : bucket.gradients) {
      laid_out.numel_before += gradient.numel();
    }
    laid_out.numel_after = laid_out.numel_before;
    laid_out.uncompressed_memory = bucket.buffer;
    return laid_out;
  }
  TANDEM_RETURN_IF_ERROR(MakeMemory(bucket, choice, group, &laid_out));
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { CutUp(bucket, options, choice, &laid_out); }));
  return laid_out;
}

void GatherUncompressed(const PowerSgdBucket& bucket) {
  ForEachUncompressed(bucket,
                      [](const at::Tensor& gradient, const at::Tensor& place) {
                        place.copy_(gradient);
                      });
}

void ScatterUncompressed(const PowerSgdBucket& bucket) {
  ForEachUncompressed(bucket,
                      [](const at::Tensor& gradient, const at::Tensor& place) {
                        gradient.copy_(place);
                      });
}

}  // namespace tandem
